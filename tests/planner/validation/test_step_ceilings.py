"""Errors of step time on a few published rows of every kind stay where the calibration left them."""

from statistics import fmean

import pytest

from cost_models.profiles import profiles_root
from planner.validation.predict import outcome_of
from planner.validation.ranking import order_of
from planner.validation.rows import Run, read_runs

RUNS = {run.id: run for run in read_runs(profiles_root() / "published" / "runs.csv")}

CEILINGS = {
    "A100, fp16 of 2022": (0.06, "korth-001 korth-004 korth-006 bloom-009 bloom-013 bloom-066"),
    "A100, FSDP": (0.06, "mpt-092 mpt-101 mpt-111 mpt-159 mpt-173"),
    "H100": (0.06, "mpt-024 mpt-037 mpt-073 bskill-013 bskill-018"),
    "B200": (0.06, "simumax-002 simumax-010 simumax-018 simumax-041"),
    "V100": (0.08, "v100-072 v100-078 v100-080 v100-084"),
    "mixtures": (0.15, "bridge-007 bridge-009 bridge-010 bridge-049 simumax-013 simumax-021 bskill-003"),
    "ResNet-50": (0.12, "dle-001 dle-003 dle-005 dle-007"),
}
"""Mean of |predicted / measured - 1| that no change may pass, about half as much again as it was when written."""


@pytest.mark.parametrize("kind", CEILINGS)
def test_mean_errors_stay_below_their_ceilings(kind: str):
    ceiling, names = CEILINGS[kind]
    errors = [outcome_of(RUNS[name]).step_error for name in names.split()]
    assert fmean(abs(error) for error in errors if error is not None) < ceiling


def rows(source: str, model: str) -> list[Run]:
    return [run for run in RUNS.values() if run.source == source and run.text("model") == model]


@pytest.mark.parametrize(
    ("source", "model", "tau"), [("bskill", "llama3-70b", 0.7), ("simumax", "llama3-70b-l12", 0.7)]
)
def test_layouts_are_ordered_as_measured(source: str, model: str, tau: float):
    order = order_of([outcome_of(run) for run in rows(source, model) if run.text("seq_len") == "4096"])
    assert order
    assert order.tau is not None
    assert order.tau >= tau
    assert order.regret < 0.03
