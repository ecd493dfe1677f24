"""Answers as people read them: rich tables and bars on standard output."""

from planner.render.check import show_check
from planner.render.facts import show_catalog, show_validation
from planner.render.model import show_model
from planner.render.plan import show_evaluation, show_plan

__all__ = ["show_catalog", "show_check", "show_evaluation", "show_model", "show_plan", "show_validation"]
