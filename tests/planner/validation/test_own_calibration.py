"""A user's own runs: the slowness planted in them is found, written beside, and refused where it does not help."""

from dataclasses import replace
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from cost_models.profiles import ROOT_VARIABLE
from planner.validation.calibrate.own import OwnCalibration, calibrate_own, write_own
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
