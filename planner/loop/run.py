"""The loop: measure the device, plan for one, two and four processes, run every layout, compare."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cost_models.errors import PlannerError
from cost_models.profiles import MeasuredProfile, measured_profile
from cost_models.profiles.catalog import HOST_DEVICE
from cost_models.specs.strategy import Strategy, parse_strategy
from planner.evaluation import Context, complete_legal
from planner.executor.launch.environment import threads_of
from planner.executor.profiled.order import ProfiledModel, ProfileOrder
from planner.executor.profiled.run import profile_device, was_interrupted
from planner.executor.profiled.table import LayerRow, layer_table
from planner.executor.request import RunOptions, RunOrder, order_of
from planner.executor.run import run_order
from planner.loop.cases import PRECISION, Layout, layouts, micro_batches, request_of, tensor_parallel
from planner.loop.summary import LoopRow, LoopSummary, summarise
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import Situation, resolve

PATIENCE_S: Final = 300.0
PLAN_SECONDS: Final = 5.0
PLANNED: Final = (1, 2, 4)
PLANNED_BATCH: Final = 4
PLANNED_GROUP: Final = "planned"

OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """`minutes` for everything; `profile_share` of them for the profile, none where there is one and `reuse` is set.
    `output` takes the profile, else the user's own folder; `only` keeps layouts whose name holds it."""

    minutes: float = 5.8
    profile_share: float = 0.36
    steps: int = 3
    reuse: bool = False
    small: bool = False
    output: Path | None = None
    most: int | None = None
    only: str = ""


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What the loop found."""

    profile: MeasuredProfile
    layers: tuple[LayerRow, ...]
    rows: tuple[LoopRow, ...]
    summary: LoopSummary
    load_before: float
    wall_s: float


def run_loop(options: LoopOptions, on_event: OnEvent | None = None) -> LoopResult:
    """Profile, plan, run, compare; a layout that does not run, or is not begun in time, is a row that says why."""
    started, load = time.monotonic(), load_now()
    report = on_event or (lambda event: None)
    profile = _profile(options, report)
    ends = started + 60.0 * options.minutes
    rows = []
    for layout, planned in _cases(options):
        if time.monotonic() > ends:
            row = _row(layout, planned, failure=f"not begun within {options.minutes:g} minutes")
        else:
            row = _run(layout, planned, options)
        rows.append(row)
        report({"event": "layout", **row.to_json()})
    layers = [line for count in (1, host_cores()) for line in _layers(profile, count, options)]
    wall_s = time.monotonic() - started
    return LoopResult(profile, tuple(layers), tuple(rows), summarise(rows), load, wall_s)


def host_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def load_now() -> float:
    """Processes that want to run, over the cores, in the last minute."""
    return os.getloadavg()[0] / host_cores()


def _profile(options: LoopOptions, report: OnEvent) -> MeasuredProfile:
    known = measured_profile(HOST_DEVICE) if options.reuse else None
    if known is not None:
        return known
    order = ProfileOrder(
        precision=PRECISION,
        budget_s=60.0 * options.minutes * options.profile_share,
        grid=False,
        models=(
            ProfiledModel(
                request=request_of(layouts()[0], small=options.small),
                micro_batches=micro_batches(),
                tp=tensor_parallel(),
            ),
        ),
    )
    found = profile_device(order, options.output, on_event=report)
    if was_interrupted(found):  # the profile stays; nothing is run after it
        raise KeyboardInterrupt
    return found


def _cases(options: LoopOptions) -> list[tuple[Layout, bool]]:
    """The best plans for one, two and four processes where they are none of the layouts, then the layouts."""
    known = {(layout.strategy, layout.processes) for layout in layouts()}
    found: list[tuple[Layout, bool]] = []
    for processes in PLANNED if options.only in PLANNED_GROUP else ():
        layout = _planned(processes, options)
        if layout is not None and (layout.strategy, processes) not in known:
            found.append((layout, True))
    found += [(layout, False) for layout in layouts() if options.only in layout.name]
    return found[: options.most]


def _planned(processes: int, options: LoopOptions) -> Layout | None:
    """The best plan for so many processes, as a layout."""
    wanted = Layout("", processes, "torch", PLANNED_BATCH, PLANNED_GROUP)
    situation = _situation(wanted, options)
    # No offload: the host is the device.
    search = SearchRequest(max_seconds=PLAN_SECONDS, top_k=1, pins={"offload": "none"})
    found = make_plan(situation, search)
    if found.best is None:
        return None
    return replace(wanted, strategy=_short(situation, found.best.strategy))


def _short(situation: Situation, strategy: Strategy) -> str:
    """The strategy's text without what the engine would choose by itself."""
    context, parts = Context.of(situation), strategy.text().split(",")
    for part in list(parts):
        fewer = [other for other in parts if other is not part]
        if fewer and _completed(context, ",".join(fewer)) == strategy:
            parts = fewer
    return ",".join(parts)


def _completed(context: Context, text: str) -> Strategy | None:
    try:
        return complete_legal(context, parse_strategy(text))
    except PlannerError:
        return None


def _situation(layout: Layout, options: LoopOptions) -> Situation:
    request = request_of(layout, small=options.small)
    return resolve(request.model, request.cluster, request.job)


def _run(layout: Layout, planned: bool, options: LoopOptions) -> LoopRow:
    load = load_now()
    try:
        report = run_order(_order(layout, options))
    except PlannerError as error:
        return _row(layout, planned, load=load, failure=str(error).splitlines()[0][:200])
    found = report.prediction
    return _row(
        layout,
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
    )


def _order(layout: Layout, options: LoopOptions) -> RunOrder:
    run = RunOptions(steps=options.steps, timeout_s=PATIENCE_S)
    return order_of(_situation(layout, options), parse_strategy(layout.strategy), run)


def _row(layout: Layout, planned: bool, **values: Any) -> LoopRow:
    return LoopRow(layout.strategy, layout.engine, layout.processes, layout.group, planned, **values)


def _layers(profile: MeasuredProfile, processes: int, options: LoopOptions) -> tuple[LayerRow, ...]:
    """The layers that so many processes measured side by side, beside the prediction from their kernels."""
    layout = Layout("", processes, "torch", PLANNED_BATCH, "layers")
    return layer_table(profile, _situation(layout, options), processes)
