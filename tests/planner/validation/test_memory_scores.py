"""Scores of verdicts by hand, and reasons read off neighbouring rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.validation.memory_scores import at_risk_share, brier, risk_json
from planner.validation.predict import Outcome, outcome_of
from planner.validation.reasons import reason
from planner.validation.rows import Run

CELLS = {
    "id": "a-1",
    "model": "m",
    "model_json": "models/llama3-8b.json",
    "seq_len": "4096",
    "gpu": "H100-SXM-80GB",
    "n_gpus": "8",
    "framework": "Megatron-Bridge",
    "precision": "bf16",
    "tp": "2",
    "dp": "4",
    "sequence_parallel": "true",
    "recompute": "none",
    "micro_batch": "1",
    "global_batch": "32",
    "zero_stage": "1",
    "peak_memory_gib": "40",
    "memory_kind": "torch max_memory_allocated, max over ranks; reserved 42 GiB",
}


def outcome(probability: float, *, failed: bool = False, verdict: str = "fits") -> Outcome:
    found = outcome_of(Run(CELLS | {"oom": "true" if failed else "false"}, Path()))
    assert found.prediction is not None
    return replace(found, prediction=replace(found.prediction, oom_probability=probability, verdict=verdict))


def measured(**cells: str) -> Outcome:
    return outcome_of(Run(CELLS | cells, Path()))


def test_brier_by_hand():
    # (0.2 - 0)^2, (0.7 - 1)^2: 0.04 and 0.09, on average 0.065
    assert brier([outcome(0.2), outcome(0.7, failed=True)]) == pytest.approx(0.065)
    assert brier([]) is None


def test_verdicts_are_counted_apart_for_what_ran_and_what_failed():
    rows = [outcome(0.1, verdict="at_risk"), outcome(0.0), outcome(0.0), outcome(0.01, failed=True)]
    found = risk_json(rows)
    assert (found["ran"], found["ran_at_risk"], found["failed"], found["failed_fits"]) == (3, 1, 1, 1)
    assert at_risk_share(rows) == pytest.approx(1 / 3)


def test_what_the_allocator_held_is_a_counter_of_its_own():
    found = measured()
    assert found.run.reserved_bytes == 42 * 1024**3
    assert found.prediction is not None
    held = found.prediction.memory.stages[0].reserved_bytes
    assert found.reserved_error == pytest.approx(held / (42 * 1024**3) - 1)


def test_rows_of_equal_settings_contradict_each_other():
    first, second = measured(peak_memory_gib="90"), measured(id="a-2", peak_memory_gib="40")
    assert reason(first, [first, second]) == "a-2 has the same settings and shows 40.0 GiB"


def test_a_neighbour_tells_what_grows_with_tokens():
    first = measured(peak_memory_gib="90")
    second = measured(id="a-2", micro_batch="2", global_batch="64", peak_memory_gib="90")
    assert "from micro-batch 2 to 1 it changes by +0.0 GiB" in reason(first, [first, second])


def test_without_a_neighbour_the_largest_causes_are_named():
    first = measured(peak_memory_gib="90")
    assert "GiB beside" in reason(first, [first])


def test_nvidia_smi_is_held_against_the_predicted_allocation():
    first = measured(memory_kind="nvidia-smi GB", peak_memory_gib="90")
    assert "predicted as allocated" in reason(first, [first])
