"""Pipeline schedules as static operation lists, and the exact time of a step that follows them."""

from cost_models.schedule.bounds import (
    fill_drain_bound,
    gpipe_bound,
    rank_bound,
    rank_bound_with_tail,
    step_bound,
    total_bound,
)
from cost_models.schedule.critical_path import ManyPaths, PathCoefficients, critical_path
from cost_models.schedule.durations import PipelineDurations
from cost_models.schedule.in_flight import InFlight, in_flight
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import operations
from cost_models.schedule.placement import num_stages, rank_of_stage, stage_of, stage_table
from cost_models.schedule.rank_list import Operation, Phase
from cost_models.schedule.rules import (
    IllegalScheduleError,
    ScheduleViolation,
    schedule_violations,
)
from cost_models.schedule.simulate import OperationTimeline, Timeline, simulate, simulate_operations

__all__ = [
    "IllegalScheduleError",
    "InFlight",
    "ManyPaths",
    "Operation",
    "OperationTimeline",
    "PathCoefficients",
    "Phase",
    "PipelineDurations",
    "ScheduleName",
    "ScheduleViolation",
    "Timeline",
    "critical_path",
    "fill_drain_bound",
    "gpipe_bound",
    "in_flight",
    "num_stages",
    "operations",
    "rank_bound",
    "rank_bound_with_tail",
    "rank_of_stage",
    "schedule_violations",
    "simulate",
    "simulate_operations",
    "stage_of",
    "stage_table",
    "step_bound",
    "total_bound",
]
