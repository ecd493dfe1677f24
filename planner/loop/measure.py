"""One layout run, or why not; its row beside the prediction with and without the device's profile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cost_models.errors import PlannerError
from cost_models.profiles import MEASURED_VARIABLE
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.executor.launch.environment import threads_of
from planner.executor.request import RunOptions, RunOrder, order_of
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
    """The row of a layout that did not run."""
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
    return LoopRow(
        layout.strategy,
        layout.engine,
        layout.processes,
        layout.group,
        planned,
        predicted_step_s=found.step_s,
        low_s=found.step_s_low,
        high_s=found.step_s_high,
        measured_step_s=report.step_s,
        busy_step_s=report.processor_s / min(host_cores(), layout.processes * threads_of(layout.processes)),
        predicted_bytes=found.memory.peak_allocated_bytes,
        measured_bytes=max(report.peak_by_rank),
        load=load,
        compute_from=found.provenance.get("compute", ""),
        model=layout.model.name,
        predicted_reserved_bytes=found.memory.peak_reserved_bytes,
        measured_reserved_bytes=max(report.reserved_by_rank),
        unprofiled_step_s=_without_profile(order),
    )


def _without_profile(order: RunOrder) -> float:
    """The step as it is predicted for a device of this kind that was never measured."""
    with _profiles_hidden():
        return evaluate(order.situation, order.strategy).step_s


@contextmanager
def _profiles_hidden() -> Iterator[None]:
    before = os.environ.get(MEASURED_VARIABLE)
    os.environ[MEASURED_VARIABLE] = ""
    try:
        yield
    finally:
        del os.environ[MEASURED_VARIABLE]
        if before is not None:
            os.environ[MEASURED_VARIABLE] = before
