"""The critical path is the step for its own durations and a lower bound for all others."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cost_models.schedule import ManyPaths, PipelineDurations, ScheduleName, critical_path, simulate

GPIPE, ONE_F_ONE_B, INTERLEAVED = ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED

POINTS = [
    (GPIPE, 3, 1, 5),
    (ONE_F_ONE_B, 1, 1, 4),
    (ONE_F_ONE_B, 2, 1, 1),
    (ONE_F_ONE_B, 4, 1, 3),
    (ONE_F_ONE_B, 8, 1, 60),
    (ONE_F_ONE_B, 16, 1, 480),
    (INTERLEAVED, 2, 2, 4),
    (INTERLEAVED, 4, 3, 8),
    (INTERLEAVED, 8, 2, 96),
    (INTERLEAVED, 16, 2, 480),
]


def _random(rng, shape):
    return PipelineDurations(
        forward_s=0.2 + rng.random(shape),
        backward_s=0.4 + 2 * rng.random(shape),
        first_forward_extra_s=rng.random(shape),
        last_backward_extra_s=rng.random(shape),
        send_s=0.1 * rng.random(shape[2:]),
    )


def test_slow_first_rank_is_the_whole_path():
    slow = np.array([[10.0], [1.0]])
    path = critical_path(ONE_F_ONE_B, 2, 1, 4, PipelineDurations(slow, slow))
    assert path.forward_count.tolist() == [[4], [0]]
    assert path.backward_count.tolist() == [[4], [0]]
    assert (path.edge_count, path.end_rank) == (0, 0)
    assert path.first_forward_count.tolist() == [[1], [0]]
    assert path.last_backward_count.tolist() == [[1], [0]]


def test_slow_last_rank_is_entered_and_left_over_the_edge():
    # F0 on rank 0, send, all of rank 1 (4 forwards, 4 backwards), send, B3 on rank 0: 1 + 80 + 1 + 2 * 0.5.
    slow = np.array([[1.0], [10.0]])
    durations = PipelineDurations(slow, slow, send_s=0.5)
    path = critical_path(ONE_F_ONE_B, 2, 1, 4, durations)
    assert path.forward_count.tolist() == [[1], [4]]
    assert path.backward_count.tolist() == [[1], [4]]
    assert path.edge_count == 2
    assert path.lower_bound_s(durations) == 83.0


@pytest.mark.parametrize(("schedule", "p", "v", "m"), POINTS)
def test_path_is_the_step_of_its_own_and_at_most_the_step_of_other_durations(schedule, p, v, m):
    rng = np.random.default_rng(m + p)
    others = _random(rng, (p, v, 50))
    other_steps_s = simulate(schedule, p, v, m, others).step_s
    for _ in range(3):
        durations = _random(rng, (p, v))
        path = critical_path(schedule, p, v, m, durations)
        step_s = float(simulate(schedule, p, v, m, durations).step_s)
        assert float(path.lower_bound_s(durations)) == pytest.approx(step_s, rel=1e-12)
        assert (path.lower_bound_s(others) <= other_steps_s * (1 + 1e-12)).all()
        assert path.lower_bound_s(others).shape == (50,)


def test_path_needs_one_instance():
    with pytest.raises(ValueError, match="hold 2 instances; give one"):
        critical_path(ONE_F_ONE_B, 2, 1, 4, PipelineDurations(np.ones((2, 1, 2)), np.ones((2, 1, 2))))


def test_a_tail_moves_the_end_of_the_path_to_its_rank():
    # Two ranks of F = B = 1, m = 1: rank 1 ends at 3, rank 0 at 4; 2 s more on rank 1 make it the last, at 5.
    ones = np.ones((2, 1))
    path = critical_path(ONE_F_ONE_B, 2, 1, 1, PipelineDurations(ones, ones), tail_s=np.array([0.0, 2.0]))
    assert path.end_rank == 1
    assert path.lower_bound_s(PipelineDurations(ones, ones)) == 3.0


@pytest.mark.parametrize(("schedule", "p", "v", "m"), [*POINTS[:9], (ScheduleName.DUALPIPE_V, 4, 2, 8)])
@pytest.mark.parametrize("has_links", [False, True])
def test_many_paths_at_once_are_as_long_as_one_by_one(schedule, p, v, m, has_links):
    rng = np.random.default_rng(m)
    others = _random(rng, (p, v, 20))
    more = {name: rng.random((p, v, 20)) for name in ("input_gradient_s", "weight_gradient_s")}
    more |= {"link_s": rng.random((p, 20))} if has_links else {}
    others = replace(others, **more)
    paths = []
    for column in range(6):
        one = {f.name: getattr(others, f.name) for f in fields(others)}
        one = {name: x[..., column] if isinstance(x, np.ndarray) else x for name, x in one.items()}
        paths.append(critical_path(schedule, p, v, m, PipelineDurations(**one)))
    together_s = ManyPaths.of(paths).lower_bounds_s(others)
    assert together_s == pytest.approx(np.stack([path.lower_bound_s(others) for path in paths]), rel=1e-12)
