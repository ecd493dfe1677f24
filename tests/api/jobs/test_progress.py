"""Progress of one attempt: bounds never worsen, whatever a worker says."""

import itertools
import random
from typing import Any

from api.jobs.progress import Progress, of_result


def said(lower: float | None, best: float | None, done: int) -> dict[str, Any]:
    gap = None if lower is None or best is None else (best - lower) / best
    return {"lower_bound_s": lower, "best_step_s": best, "gap": gap, "meshes_done": done, "meshes_total": 10}


def test_what_is_better_is_taken_and_what_is_worse_is_not() -> None:
    progress = Progress()
    assert progress.update(said(1.0, None, 1)) == (True, False)
    assert progress.update(said(1.0, None, 1)) == (False, False)
    assert progress.update(said(0.5, 4.0, 2)) == (True, True)
    assert progress.update(said(2.0, 5.0, 1)) == (True, False)
    assert progress.to_json() == {
        "lower_bound_s": 2.0,
        "best_step_s": 4.0,
        "gap": 0.6,  # (5 - 2)/5 was said; (4 - 0.5)/4 = 0.875 before
        "meshes_done": 2,
        "meshes_total": 10,
    }


def test_bounds_never_worsen_at_random() -> None:
    draw = random.Random(7)
    progress, seen = Progress(), []
    for _ in range(300):
        number = draw.choice([None, draw.uniform(0, 10)])
        progress.update(said(number, draw.choice([None, draw.uniform(0, 10)]), draw.randrange(10)))
        seen.append(progress.to_json())
    for before, after in itertools.pairwise(seen):
        assert (before["lower_bound_s"] or 0) <= (after["lower_bound_s"] or 0)
        assert after["best_step_s"] is not None or before["best_step_s"] is None
        if before["best_step_s"] is not None:
            assert after["best_step_s"] <= before["best_step_s"]
        assert before["meshes_done"] <= after["meshes_done"]


def test_a_result_says_how_far_it_came() -> None:
    certificate = {"lower_bound_s": 1.0, "gap": 0.5, "meshes_total": 9, "meshes_open": 2}
    result = {"certificate": certificate, "best": {"step_s": 2.0}}
    assert of_result(result) == said(1.0, 2.0, 7) | {"meshes_total": 9}
