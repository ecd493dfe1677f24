"""Answers as people read them: rich tables and bars on standard output."""

from planner.render.calibration import show_calibration
from planner.render.check import show_checks
from planner.render.facts import show_catalog, show_validation
from planner.render.model import show_model
from planner.render.plan import show_evaluation, show_plan
from planner.render.run import show_run, show_verification
from planner.render.simulation import show_simulation

__all__ = [
    "show_calibration",
    "show_catalog",
    "show_checks",
    "show_evaluation",
    "show_model",
    "show_plan",
    "show_run",
    "show_simulation",
    "show_validation",
    "show_verification",
]
