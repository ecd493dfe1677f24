"""Simulations."""

from typing import Annotated

from pydantic import Field

from api.answers.parts import StrategyBody
from cost_models.specs.base import Frozen


class RankBody(Frozen):
    """What one pipeline rank does in a step."""

    rank: int
    operations: int
    busy_s: float
    bubble_s: float
    bubble_fraction: float
    reduction_exposed_s: float
    tail_s: float
    in_flight_peak: int
    in_flight_by_chunk: list[int]


class OperationsBody(Frozen):
    """Columns of operations in order of their start."""

    rank: list[int]
    phase: list[str]
    chunk: list[int]
    stage: list[int]
    micro_batch: list[int]
    start_s: list[float]
    end_s: list[float]
    joined: list[bool]
    paired: list[bool]


class RankEndBody(Frozen):
    """What ends a rank's step."""

    reduction_s: float
    gather_s: float
    optimizer_s: float


class TimelineBody(Frozen):
    """The first and the last operations of a step; `left_out` are missing in `gap_s`."""

    operations: OperationsBody
    shown: int
    left_out: int
    gap_s: Annotated[list[float], Field(min_length=2, max_length=2)] | None
    ranks: list[RankEndBody]
    barrier_s: float
    tail_end_s: float


class SimulationBody(Frozen):
    """`planner simulate --json` with a timeline."""

    makespan_s: float
    step_s: float
    pipeline_s: float
    fixed_s: float
    straggler_s: float
    send_s: float
    schedule: str
    micro_batches: int
    operations: int
    bubble_s: list[float]
    bubble_fraction: list[float]
    in_flight_peak: list[int]
    ranks: list[RankBody]
    strategy: StrategyBody
    timeline: TimelineBody
