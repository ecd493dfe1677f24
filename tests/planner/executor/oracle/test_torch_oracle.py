"""Predicted peaks are those of torch's own tracker over the executor's program, at the width of real models."""

import pytest

from cost_models.errors import BadInput
from cost_models.units import GIB

pytest.importorskip("torch")

from planner.executor.oracle.cases import LLAMA_8B, LLAMA_70B, OracleCase
from planner.executor.oracle.compare import compare, document
from planner.executor.oracle.extrapolate import oracle_peak
from planner.executor.oracle.measure import measure
from planner.executor.oracle.tracker import TOTAL, OraclePhase

WITHIN = 0.02

CASES = (
    OracleCase(LLAMA_8B, 8, "dp=8,mbs=1,zero=3", 8),
    OracleCase(LLAMA_8B, 8, "dp=8,mbs=1,zero=2", 16),
    OracleCase(LLAMA_8B, 64, "dp=64,mbs=1,zero=3,recompute=selective:mlp", 64),
    OracleCase(LLAMA_70B, 64, "dp=64,mbs=1,zero=3,recompute=full", 64),
    OracleCase(LLAMA_70B, 64, "tp=8,dp=8,sp=true,mbs=1,zero=3", 8),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_prediction_stands_beside_the_tracker(case):
    row = compare(case)
    assert abs(row.error) <= WITHIN
    assert sum(row.oracle.by_category.values()) == pytest.approx(row.oracle.peak_bytes)
    assert f"`{case.strategy}`" in document([row])


@pytest.mark.slow
def test_states_are_those_of_the_shard():
    """8.03e9 parameters over 8 ranks: 4 bytes each of weights, 8 of moments; nothing else rests beside them."""
    found = oracle_peak(CASES[0].order())
    shard = 8_030_261_248 / 8
    assert found.by_category["Sharded Param"] == pytest.approx(4 * shard, rel=1e-3)
    assert found.by_category["OptState"] == pytest.approx(8 * shard, rel=1e-3)
    # The loss stands on bf16 logits' gradients beside the fp32 softmax: 8192 x 128,256 x 6 bytes.
    assert found.phase is OraclePhase.LOSS
    assert found.by_phase[OraclePhase.LOSS] - found.by_phase[OraclePhase.OPTIMIZER_STEP] > 5.8 * GIB


@pytest.mark.slow
def test_a_rank_of_a_small_world_needs_no_peer():
    case = OracleCase("llama-3.2-1b", 2, "dp=2,mbs=1,zero=3,recompute=full", 2)
    peaks = measure(case.order(), rank=1)
    assert {phase for phase, _ in peaks} == set(OraclePhase)
    assert max(each[TOTAL] for each in peaks.values()) > peaks[OraclePhase.OPTIMIZER_STEP, 0][TOTAL]


def test_what_the_tracker_does_not_follow_is_refused():
    case = OracleCase(LLAMA_8B, 8, "pp=2,dp=4,mbs=1,zero=1", 8)
    with pytest.raises(BadInput, match="zero 1 with pp 2"):
        measure(case.order())
