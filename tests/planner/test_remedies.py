"""A gate that says no says what would help: evaluated changes of one knob."""

import pytest

from cost_models.specs.strategy import parse_strategy, strategy_from_mapping
from planner.checking import Limits, check
from planner.evaluation import evaluate
from planner.remedies import remedies


@pytest.fixture
def tight(make_situation):
    """Llama-3.1-8B on 8 devices of 80 GB: micro-batch 1 fits, 4 does not."""
    return make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64)


def test_a_larger_micro_batch_fails_with_stage_phase_cause_and_remedy(tight):
    assert check(tight, parse_strategy("tp=2,mbs=1"), Limits()).passed
    report = check(tight, parse_strategy("tp=2,mbs=4"), Limits())
    assert not report.passed
    (failure,) = report.failures
    prediction = report.prediction
    assert failure.startswith(f"does not fit: stage {prediction.memory.worst_stage} needs ")
    assert f"in {prediction.memory.peak_phase}; " in failure
    assert "is saved activations" in failure
    assert "makes it" in failure
    assert "step time" in failure
    assert report.to_json()["remedies"][0]["change"] in failure


def test_every_remedy_fits_and_the_fastest_is_first(tight):
    before = evaluate(tight, parse_strategy("tp=2,mbs=4"))
    found = remedies(tight, before)
    assert len(found) >= 2
    assert [each.step_s for each in found] == sorted(each.step_s for each in found)
    for each in found:
        key, _, value = each.change.partition("=")
        changed = before.strategy.to_json() | {key: int(value) if key in ("mbs", "zero") else value}
        after = evaluate(tight, strategy_from_mapping(changed))
        assert after.verdict == "fits"
        assert (after.step_s, after.memory.device_used_bytes) == (each.step_s, each.device_used_bytes)
        assert each.slowdown == pytest.approx(after.step_s / before.step_s - 1)


def test_where_nothing_helps_it_says_so(make_situation):
    of = make_situation("llama-3.1-405b", "dgx-h100", 8, seq_len=8192, global_batch=8)
    report = check(of, parse_strategy("tp=8"), Limits())
    assert report.remedies == ()
    assert "no change of one knob" in report.failures[0]
