"""A user's own runs: the slowness planted in them is found, written beside, and refused where it does not help."""

from dataclasses import replace
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from cost_models.profiles import ROOT_VARIABLE
from cost_models.units import GIB
from planner.validation.calibrate.own import OwnCalibration, calibrate_own, write_own
from planner.validation.calibrate.own_memory import calibrate_memory
from planner.validation.predict import Outcome, outcome_of
from planner.validation.rows import Run
from tests.planner.validation.llama_row import ROW


def run_of(number: int, slower: float) -> Outcome:
    cells = ROW | {"id": f"ours-{number}", "global_batch": str(32 * number), "step_time_s": "1"}
    predicted = outcome_of(Run(cells, Path())).step_s
    assert predicted
    return outcome_of(Run(cells | {"step_time_s": repr(slower * predicted)}, Path()))


@pytest.fixture(scope="module")
def found() -> OwnCalibration:
    return calibrate_own([run_of(number, 1.2) for number in range(1, 8)])


def test_a_slow_cluster_is_found(found: OwnCalibration):
    # every run takes 1.2 times what is predicted: log 1.2 = 0.182 before
    assert found.errors["fitted_before"] == pytest.approx(0.182, abs=1e-3)
    assert found.errors["fitted_after"] < 0.04
    assert found.helps
    assert found.fitted + max(found.held, 0) == 7
    assert all(ratio < 1.0 for ratio in found.ratios.values())


def test_the_copy_predicts_what_was_measured(
    found: OwnCalibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = write_own(found, tmp_path / "ours", [Path("ours.csv")])
    with pytest.raises(BadInput, match="exists"):
        write_own(found, folder, [])
    measured = run_of(3, 1.2)
    assert measured.step_error == pytest.approx(1 / 1.2 - 1, abs=1e-6)
    cells = {**measured.run.cells, "model_json": "llama3-8b.json"}
    models = Path(__file__).parents[3] / "profiles" / "published" / "models"
    monkeypatch.setenv(ROOT_VARIABLE, str(folder))
    again = outcome_of(Run(cells, models))
    assert again.step_error is not None
    assert abs(again.step_error) < 0.04


def test_runs_that_get_worse_are_told():
    found = calibrate_own([run_of(number, 1.0) for number in (1, 2, 3)])
    worse = replace(found, errors={**found.errors, "held_out_after": found.errors["held_out_before"] + 0.01})
    assert not worse.helps
    assert worse.to_json()["written"] is False


def test_too_few_runs_are_refused():
    with pytest.raises(BadInput, match="3 or more"):
        calibrate_own([run_of(1, 1.0)])


def memory_of(number: int, beside_gib: float, counter: str = "max allocated, GiB") -> Outcome:
    """A run whose step is as predicted and whose counter shows so many GiB beside what is predicted."""
    cells = run_of(number, 1.0).run.cells | {"memory_kind": counter, "peak_memory_gib": "1"}
    predicted = outcome_of(Run(cells, Path())).predicted_bytes
    assert predicted
    return outcome_of(Run(cells | {"peak_memory_gib": repr(predicted / GIB + beside_gib)}, Path()))


def test_bytes_beside_the_tensors_are_found_written_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = calibrate_own([memory_of(number, 1.5) for number in range(1, 8)])
    assert found.memory is not None
    assert found.memory.shifts_bytes == {"a100-sxm-80gb": pytest.approx(1.5 * GIB, rel=1e-6)}
    assert found.memory.errors["held_out_before"] > 0.02 > found.memory.errors["held_out_after"]
    folder = write_own(found, tmp_path / "ours", [Path("ours.csv")])
    measured = memory_of(3, 1.5).run
    models = Path(__file__).parents[3] / "profiles" / "published" / "models"
    monkeypatch.setenv(ROOT_VARIABLE, str(folder))
    again = outcome_of(Run({**measured.cells, "model_json": "llama3-8b.json"}, models))
    assert again.memory_error == pytest.approx(0.0, abs=1e-3)


def test_one_run_that_kept_much_moves_nothing():
    rows = [memory_of(number, -0.5) for number in range(1, 8)]
    odd = memory_of(9, 20.0)
    found = calibrate_memory([*rows, odd])
    assert found is not None
    assert found.shifts_bytes == {"a100-sxm-80gb": pytest.approx(-0.5 * GIB, rel=1e-6)}


def test_what_the_allocator_holds_counts_with_its_slack():
    found = calibrate_memory([memory_of(number, 1.05, "max reserved, GiB") for number in (1, 2, 3)])
    assert found is not None
    # states of Megatron lie in contiguous buffers: 5 % are held beside what is allocated
    assert found.shifts_bytes == {"a100-sxm-80gb": pytest.approx(1.0 * GIB, rel=1e-6)}


def test_without_counters_there_is_no_memory_to_fit():
    assert calibrate_own([run_of(number, 1.0) for number in (1, 2, 3)]).memory is None
