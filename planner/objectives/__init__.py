"""Objectives other than step time: each search asks for the fastest plan of changed questions, and keeps a proof."""

from planner.objectives.oracle import StepOracle
from planner.objectives.search import plan_for

__all__ = ["StepOracle", "plan_for"]
