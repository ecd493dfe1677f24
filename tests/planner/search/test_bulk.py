"""Bulk evaluation gives the numbers of `evaluate`, and verification passes on whatever is returned."""

import random

import pytest

from planner.answers import Prediction
from planner.evaluation import Context, evaluate_many
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.search.bulk import outcomes
from planner.validation.search_speed import random_strategies
from planner.verify import verify

CASES = [
    ("llama-3.1-8b", "dgx-h100", 16, {"seq_len": 8192, "global_batch": 128}),
    ("mixtral-8x7b", "dgx-h100", 32, {"seq_len": 4096, "global_batch": 96, "engine": "torch"}),
    ("llama-3.1-8b", "dgx-a100", 8, {"seq_len": 4096, "global_batch": 64, "engine": "torchtitan"}),
]


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES, ids=lambda x: str(x)[:14])
def test_bulk_equals_evaluate(make_situation, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job)
    context = Context.of(of)
    drawn = list(random_strategies(context, random.Random(2), 60))
    found = outcomes(context.pricer, drawn)
    predicted = evaluate_many(of, drawn)
    assert all(isinstance(p, Prediction) for p in predicted)
    for place, prediction in enumerate(predicted):
        assert found.step_s[place] == pytest.approx(prediction.step_s, rel=1e-12)
        assert found.fits[place] == (prediction.verdict == "fits")


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES[:2], ids=lambda x: str(x)[:14])
def test_every_plan_returned_verifies(make_situation, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job)
    result = make_plan(of, SearchRequest(top_k=4))
    assert result.best is not None
    for plan in (result.best, *result.alternatives):
        verify(Context.of(of), plan)


def test_a_search_that_is_told_to_stop_says_what_it_left_open(make_situation):
    of = make_situation("llama-3.1-70b", "dgx-h100", 64, seq_len=8192, global_batch=512)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 40

    result = make_plan(of, SearchRequest(), None, stop)
    found = result.certificate
    ended = found.meshes_out_of_memory + found.meshes_bounded + found.meshes_solved + found.meshes_open
    assert found.meshes_total == sum(found.meshes_illegal.values()) + ended
    assert found.meshes_open > 0
    assert result.status in ("feasible", "unknown")
    assert asked > 40


def test_an_error_in_the_progress_callback_reaches_the_caller(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=128)

    def fail(progress: object) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        make_plan(of, SearchRequest(), fail)
