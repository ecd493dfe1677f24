"""One process of a profile: `python -m planner.executor.profiled.worker ORDER.json FOLDER RANK`."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from cost_models.profiler.case import Case, Found, Team
from cost_models.profiler.clocks import WallClock, clock_of
from cost_models.profiler.collectives import INTERFERENCE_BYTES, collective_cases, interference
from cost_models.profiler.facts import fact, memory_facts
from cost_models.profiler.machine import device_name, machine, versions
from cost_models.profiler.measure import Effort, Progress, measure
from cost_models.profiler.products import attention_cases, convolution_cases, gemm_grid, grouped_cases
from cost_models.profiler.site import Site
from cost_models.profiler.team import Alone, Group
from cost_models.profiler.traffic import copy_cases, traffic_cases
from cost_models.profiler.writer import write_profile
from cost_models.profiles.measured import POINTS_FILE, Machine, Manifest, Point, read_points
from planner.executor.memory import MemoryMeter
from planner.executor.model.chunk import ChunkModule
from planner.executor.profiled.layers import (
    Bench,
    bench_of,
    chunk_of,
    divided_cases,
    layer_cases,
    operator_cases,
    saved_bytes,
)
from planner.executor.profiled.order import ProfileOrder, read_order
from planner.situation import resolve

WRITE_EVERY_S: Final = 5.0
GRID_SHARE: Final = 0.1
"""Weight of all shapes of the grid together beside the model's own."""
LAYER_SHARE: Final = 0.2
"""Weight of whole layers together: they check the kernels, predictions do not rest on them."""
COPY_SHARE: Final = 0.2
"""Weight of copies, sums of gradients and the optimizer's step together: every model has them."""


def main() -> None:
    """Measure what the order asks for; the first process writes and tells."""
    order_path, folder, rank = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    order = read_order(order_path)
    device = _device(rank)
    with _team(order, rank, device) as team:
        facts = memory_facts(device) if rank == 0 and order.what != "collectives" else ()
        site = Site(device, order.precision, order.processes)
        cases = list(_cases(order, site))
        writer = _Writer(order, folder, device, facts) if rank == 0 else None
        progress = Progress(cases, writer.resumed(cases) if writer else {})
        _share(progress, team)
        clock = clock_of(device, torch.get_num_threads())
        effort = Effort(order.budget_s, order.tolerance)
        measure(progress, clock, team, effort, writer.on_burst if writer else None)
        more = _interference(site, team) if order.what != "kernels" else ()
        if writer is not None:
            writer.write(progress, more)


def _interference(site: Site, team: Team) -> tuple[Point, ...]:
    """How much messages slow computation down, where there are as many processors as processes."""
    cores = len(os.sched_getaffinity(0))
    if team.size < 2 or (site.device.type == "cpu" and team.size > cores):
        return ()
    found = fact("interference", interference(site))
    return (found.model_copy(update={"label": f"all_reduce of {INTERFERENCE_BYTES} bytes beside products"}),)


def _cases(order: ProfileOrder, site: Site) -> Iterator[Case]:
    """The cases of an order: what the model has first, then the grid; each shape once."""
    seen: set[str] = set()
    for case in _all_cases(order, site):
        if case.key not in seen:
            seen.add(case.key)
            yield case


def _all_cases(order: ProfileOrder, site: Site) -> Iterator[Case]:
    if order.what != "collectives":
        yield from _model_cases(order, site)
        yield from _weighted(copy_cases(site), COPY_SHARE)
        if order.grid:
            parts = (gemm_grid, attention_cases, traffic_cases, grouped_cases, convolution_cases)
            yield from _weighted((case for part in parts for case in part(site)), GRID_SHARE)
    if order.what != "kernels" and dist.is_initialized():
        yield from collective_cases(site, order.processes)


def _model_cases(order: ProfileOrder, site: Site) -> Iterator[Case]:
    """The models' own operators and layers, weighted by their share of a step."""
    found: list[Case] = []
    layers: list[Case] = []
    chunks: dict[tuple[str, str], ChunkModule] = {}
    for model in order.models:
        situation = resolve(model.request.model, model.request.cluster, model.request.job)
        key = (situation.model.name, situation.engine.options.attention)
        if key not in chunks:
            chunks[key] = chunk_of(situation, site)
        for mbs in model.micro_batches:
            bench = bench_of(situation, site, mbs, chunks[key])
            found += operator_cases(bench)
            layers += [_with_memory(bench, case) for case in layer_cases(bench)]
            for tp in model.tp:
                if tp > 1:
                    found += divided_cases(situation, site, mbs, tp)
    yield from _weighted(iter(found), 1.0)
    yield from _weighted(iter(layers), LAYER_SHARE)


def _with_memory(bench: Bench, case: Case) -> Case:
    """A layer's case with what it saves and its peak above its input, in bytes, measured once here."""
    if case.point.phase != "forward":
        return case
    index = [layer.kind for layer in bench.layers].index(case.point.name)
    features = dict(case.point.features) | {"saved_bytes": saved_bytes(bench, index)}
    both = [one for one in layer_cases(bench) if one.point.name == case.point.name]
    meter = MemoryMeter(bench.site.device)
    held = float(torch.cuda.memory_allocated()) if bench.site.device.type == "cuda" else 0.0
    meter.reset()
    both[1].make()()
    features["peak_bytes"] = max(meter.sample().allocated_bytes - held, 0.0)
    return replace(case, point=case.point.model_copy(update={"features": features}))


def _weighted(cases: Iterator[Case], share: float) -> Iterator[Case]:
    """Weights that add up to a share; equal ones where no case has any."""
    found = list(cases)
    total = sum(case.weight for case in found)
    for case in found:
        weight = case.weight / total if total > 0.0 else 1.0 / len(found)
        yield replace(case, weight=share * weight)


class _Writer:
    """Keeps the profile of this part on disk and tells how far it is, one JSON object a line."""

    def __init__(
        self, order: ProfileOrder, folder: Path, device: torch.device, facts: tuple[Point, ...]
    ) -> None:
        self._order, self._folder, self._facts = order, folder, facts
        self._device, self._machine = device_name(device), machine(device)
        self._clock = clock_of(device, torch.get_num_threads()).name
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._wall = WallClock()
        self._written = self._wall.now()

    def resumed(self, cases: list[Case]) -> dict[str, Found]:
        """Bursts of an earlier run of this part that was cut short."""
        known = {point.key: point for point in read_points(self._folder / POINTS_FILE)}
        return {case.key: Found(list(known[case.key].samples)) for case in cases if case.key in known}

    def on_burst(self, progress: Progress) -> None:
        """Tell, and write every few seconds."""
        done = sum(bool(found.bursts) or bool(found.failure) for found in progress.found.values())
        event = {
            "event": "measured",
            "cases": len(progress.cases),
            "done": done,
            "spent_s": progress.spent_s,
            "budget_s": self._order.budget_s,
        }
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
        if self._wall.now() - self._written > WRITE_EVERY_S:
            self.write(progress)

    def write(self, progress: Progress, more: tuple[Point, ...] = ()) -> None:
        """All points so far."""
        manifest = Manifest(
            device=self._device,
            machine=Machine.model_validate(self._machine),
            versions=versions(),
            started=self._started,
            budget_s=self._order.budget_s,
            spent_s=progress.spent_s,
            complete=progress.complete,
            cases=len(progress.cases),
            tolerance=self._order.tolerance,
            clock=self._clock,
            points_sha256="",
        )
        failures = tuple(
            Point(kind="fact", name="not_run", features={"value": 0.0}, label=f"{key}: {why}"[:400])
            for key, why in progress.failures.items()
        )
        write_profile(self._folder, manifest, (*progress.points(), *self._facts, *more, *failures))
        self._written = self._wall.now()


def _share(progress: Progress, team: Team) -> None:
    """Bursts that the first process knows already count on all of them, whose own stay unknown."""
    for case in progress.cases:
        bursts = len(progress.found[case.key].bursts) if case.key in progress.found else 0
        known = team.agree(bursts)
        if known and case.key not in progress.found:
            progress.found[case.key] = Found([(1.0,)] * known)


def _device(rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextmanager
def _team(order: ProfileOrder, rank: int, device: torch.device) -> Iterator[Team]:
    if order.processes == 1:
        yield Alone()
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{order.store}", rank=rank, world_size=order.processes
    )
    yield Group(device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
