"""One layout run, or why not; its row beside the prediction with and without the device's profile."""

import os
from dataclasses import replace
from typing import Final

from cost_models.errors import PlannerError
from cost_models.profiles import measured_from
from cost_models.specs.strategy import Strategy, parse_strategy
from planner.evaluation import evaluate
from planner.executor.launch.environment import threads_of
from planner.executor.request import RunOptions, order_of
from planner.executor.run import run_order
from planner.loop.cases import Layout, Place
from planner.loop.summary import LoopRow

PATIENCE_S: Final = 300.0
"""Ranks wait this long for each other: a loaded machine is slow, not broken."""


def host_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def load_now() -> float:
    """Processes that want to run, over the cores, in the last minute."""
    return os.getloadavg()[0] / host_cores()


def row_of(layout: Layout, *, planned: bool, failure: str = "", load: float = 0.0) -> LoopRow:
    """The row of a layout without what a run measured."""
    return LoopRow(
        layout.strategy,
        layout.engine,
        layout.processes,
        layout.group,
        planned,
        failure=failure,
        load=load,
        model=layout.model.name,
    )


def measured_row(layout: Layout, place: Place, steps: int, *, planned: bool) -> LoopRow:
    """Run a layout and put what it took beside what was predicted."""
    load = load_now()
    try:
        situation = place.situation(layout)
        run = RunOptions(steps=steps, timeout_s=PATIENCE_S)
        order = order_of(situation, parse_strategy(layout.strategy), run)
        report = run_order(order)
    except PlannerError as error:
        return row_of(layout, planned=planned, load=load, failure=str(error).splitlines()[0][:200])
    found = report.prediction
    return replace(
        row_of(layout, planned=planned, load=load),
        predicted_step_s=found.step_s,
        low_s=found.step_s_low,
        high_s=found.step_s_high,
        measured_step_s=report.step_s,
        busy_step_s=report.processor_s / min(host_cores(), layout.processes * threads_of(layout.processes)),
        predicted_bytes=found.memory.peak_allocated_bytes,
        measured_bytes=max(report.peak_by_rank),
        compute_from=found.provenance.get("compute", ""),
        predicted_reserved_bytes=found.memory.peak_reserved_bytes,
        measured_reserved_bytes=max(report.reserved_by_rank),
        unprofiled_step_s=_without_profile(layout, place, order.strategy),
    )


def _without_profile(layout: Layout, place: Place, strategy: Strategy) -> float:
    """The step as it is predicted for a device of this kind that was never measured: a situation keeps its curves, so
    this is one of its own."""
    with measured_from(None):
        return evaluate(place.situation(layout), strategy).step_s
