"""The loop: measure the device, plan for it, run every layout, compare."""

import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cost_models.errors import PlannerError
from cost_models.profiles import MeasuredProfile, list_devices, measured_profile
from cost_models.profiles.catalog import HOST_DEVICE
from cost_models.profiles.device_file import cluster_text
from cost_models.specs.strategy import Strategy, parse_strategy
from planner.evaluation import Context, complete_legal
from planner.executor.profiled.order import ProfiledModel, ProfileOrder
from planner.executor.profiled.run import profile_device, was_interrupted
from planner.executor.profiled.seen import SeenDevice, cluster_of_device, seen_device
from planner.executor.profiled.table import LayerRow, layer_table
from planner.loop.cases import Layout, Place, sizes
from planner.loop.cpu_layouts import CPU_LAYOUTS
from planner.loop.gpu_layouts import gpu_layouts
from planner.loop.measure import host_cores, load_now, measured_row, row_of
from planner.loop.summary import LoopRow, LoopSummary, summarise
from planner.make_plan import make_plan
from planner.plan_file import resolved_request
from planner.request import SearchRequest
from planner.situation import Situation

PLAN_SECONDS: Final = 5.0
PLANNED: Final = (1, 2, 4)
PLANNED_GROUP: Final = "planned"

OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """`minutes` for everything; `profile_share` of them for the profile, none where there is one and `reuse` is set.
    `output` takes the profile, else the user's own folder; `layouts` are run, else those of the device; `only` keeps
    the ones whose name holds it."""

    minutes: float = 5.8
    profile_share: float = 0.36
    steps: int = 3
    reuse: bool = False
    small: bool = False
    output: Path | None = None
    layouts: tuple[Layout, ...] = ()
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
    device = seen_device()
    place = Place(_accelerator(device), options.small)
    layouts = options.layouts or (gpu_layouts() if device.count else CPU_LAYOUTS)
    profile = _profile(device, place, layouts, options, report)
    place = _as_measured(place, profile)
    ends = started + 60.0 * options.minutes
    rows = []
    for layout, planned in _cases(place, layouts, options):
        if time.monotonic() > ends:
            late = f"not begun within {options.minutes:g} minutes"
            row = row_of(layout, planned=planned, failure=late)
        else:
            row = measured_row(layout, place, options.steps, planned=planned)
        rows.append(row)
        report({"event": "layout", **row.to_json()})
    lines = _layers(profile, place, layouts)
    wall_s = time.monotonic() - started
    return LoopResult(profile, lines, tuple(rows), summarise(rows), load, wall_s)


def _accelerator(device: SeenDevice) -> Mapping[str, object] | None:
    """One accelerator as a cluster; None for the host's processor."""
    found = cluster_of_device(device)
    spec: Mapping[str, object] | None = found["spec"] if isinstance(found, dict) else None
    return spec


def _as_measured(place: Place, profile: MeasuredProfile) -> Place:
    """The place with the device as its profile describes it, where the catalog does not know it."""
    if place.accelerator is None or profile.manifest.device in list_devices():
        return place
    return replace(place, accelerator=tomllib.loads(cluster_text(profile, 1)))


def _profile(
    device: SeenDevice, place: Place, layouts: Sequence[Layout], options: LoopOptions, report: OnEvent
) -> MeasuredProfile:
    known = measured_profile(device.name if device.count else HOST_DEVICE) if options.reuse else None
    if known is not None:
        return known
    order = ProfileOrder(
        precision=place.precision,
        budget_s=60.0 * options.minutes * options.profile_share,
        grid=device.count > 0,
        models=_profiled(place, layouts),
    )
    found = profile_device(order, options.output, alone=device.count > 0, on_event=report)
    if was_interrupted(found):  # the profile stays; nothing is run after it
        raise KeyboardInterrupt
    return found


def _profiled(place: Place, layouts: Sequence[Layout]) -> tuple[ProfiledModel, ...]:
    """The models of the layouts, at the micro-batch and tensor-parallel sizes that they run with."""
    of_model: dict[str, list[Layout]] = {}
    for layout in layouts:
        of_model.setdefault(layout.model.name, []).append(layout)
    return tuple(
        ProfiledModel(
            request=resolved_request(place.situation(kin[0]), SearchRequest()),
            micro_batches=sizes(kin, "mbs"),
            tp=sizes(kin, "tp"),
        )
        for kin in of_model.values()
    )


def _cases(place: Place, layouts: Sequence[Layout], options: LoopOptions) -> list[tuple[Layout, bool]]:
    """The best plans for one, two and four processes where they are none of the layouts, then the layouts."""
    known = {(layout.strategy, layout.processes) for layout in layouts}
    most = max(layout.processes for layout in layouts)
    found: list[tuple[Layout, bool]] = []
    for processes in PLANNED if options.only in PLANNED_GROUP else ():
        layout = _planned(place, layouts[0], processes) if processes <= most else None
        if layout is not None and (layout.strategy, processes) not in known:
            found.append((layout, True))
    found += [(layout, False) for layout in layouts if options.only in layout.name]
    return found[: options.most]


def _planned(place: Place, like: Layout, processes: int) -> Layout | None:
    """The best plan of a layout's question for so many processes, as a layout."""
    wanted = replace(like, strategy="", processes=processes, group=PLANNED_GROUP)
    situation = place.situation(wanted)
    # No offload: on a processor the host is the device.
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


def _layers(profile: MeasuredProfile, place: Place, layouts: Sequence[Layout]) -> tuple[LayerRow, ...]:
    """The layers of all models that were measured, on a processor also side by side, beside their prediction."""
    counts = (1, host_cores()) if place.accelerator is None else (1,)
    models = {layout.model.name: layout for layout in layouts}
    found: list[LayerRow] = []
    for layout in models.values():
        for count in counts:
            situation = place.situation(replace(layout, processes=count, engine="torch"))
            found += layer_table(profile, situation, count)
    return tuple(found)
