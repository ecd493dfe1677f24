"""Starts the processes of a profile, part by part, and puts their points together."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.profiles import MeasuredProfile, read_profile, user_folder
from cost_models.profiles.measured import (
    MANIFEST_FILE,
    POINTS_FILE,
    Manifest,
    Point,
    read_manifest,
    read_points,
)
from planner.errors import RunFailed
from planner.executor.launch.environment import MALLOC_SETTINGS
from planner.executor.profiled.order import ProfileOrder
from planner.executor.profiled.seen import seen_device

WORKER: Final = "planner.executor.profiled.worker"
PART: Final = ".part"
INTERRUPTED: Final = "interrupted"
OVERSUBSCRIBED: Final = 2
"""Processes on a core in the part that measures collectives of more processes than there are cores."""

OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One group of processes: how many, what they measure, their share of the budget."""

    processes: int
    what: str
    share: float


def parts_of(accelerators: int, cores: int, *, alone: bool) -> tuple[Part, ...]:
    """What is measured one after the other. A CPU's kernels run alone with all cores, then one process on each core;
    collectives also with more processes than cores. An accelerator's kernels run alone, collectives over all."""
    if accelerators:
        rest = () if accelerators == 1 or alone else (Part(accelerators, "collectives", 0.25),)
        return (Part(1, "kernels", 1.0 - sum(part.share for part in rest)), *rest)
    if cores == 1 or alone:
        return (Part(1, "kernels", 1.0),)
    return (
        Part(1, "kernels", 0.4),
        Part(cores, "all", 0.45),
        Part(OVERSUBSCRIBED * cores, "collectives", 0.15),
    )


def profile_device(
    order: ProfileOrder, output: Path | None = None, *, alone: bool = False, on_event: OnEvent | None = None
) -> MeasuredProfile:
    """Measure this machine's device; the written profile, cut short where the budget or the user ended it.

    Raises RunFailed where a process fails and nothing was measured at all. A part that an earlier run of the same day
    left unfinished in the same folder is gone on with.
    """
    cores = len(os.sched_getaffinity(0))
    root = output or user_folder()
    root.mkdir(parents=True, exist_ok=True)
    folders = []
    ended = ""
    for part in parts_of(seen_device().count, cores, alone=alone):
        folder = root / f"{PART}-{part.processes}-{part.what}"
        folder.mkdir(exist_ok=True)
        folders.append(folder)
        own = order.model_copy(
            update={
                "processes": part.processes,
                "what": part.what,
                "budget_s": order.budget_s * part.share,
            }
        )
        try:
            _run_part(own, folder, max(cores // part.processes, 1), on_event)
        except KeyboardInterrupt:
            ended = INTERRUPTED
            break
        except RunFailed as failure:
            ended = f"part of {part.processes} processes: {failure}"
            if not (folder / MANIFEST_FILE).exists():
                raise
    return _merged(root, order, folders, ended)


def was_interrupted(profile: MeasuredProfile) -> bool:
    """Whether the user ended a profile before its time."""
    return any(point.label == INTERRUPTED for point in profile.of("fact"))


def _run_part(order: ProfileOrder, folder: Path, threads: int, on_event: OnEvent | None) -> None:
    """All processes of one part, until they end; on an interruption they are ended and what they wrote stays."""
    environment = os.environ | MALLOC_SETTINGS
    environment |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads)}
    with tempfile.TemporaryDirectory(prefix="planner-profile-") as scratch, ExitStack() as files:
        path, ranks = Path(scratch) / "order.json", range(order.processes)
        order.model_copy(update={"store": str(Path(scratch) / "store")}).write(path)
        errors = [Path(scratch) / f"stderr-{rank}" for rank in ranks]
        workers = [
            subprocess.Popen(
                [sys.executable, "-m", WORKER, str(path), str(folder), str(rank)],
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                stderr=files.enter_context(errors[rank].open("w")),
                env=environment,
                text=True,
            )
            for rank in ranks
        ]
        try:
            _follow(workers[0], on_event, order)
            codes = [worker.wait() for worker in workers]
        finally:
            _end(workers)
        failed = [rank for rank, code in enumerate(codes) if code]
        if failed:
            texts = [errors[rank].read_text(errors="replace").strip() for rank in failed]
            said = next((text for text in texts if text), "no message").splitlines()[-1][:300]
            raise RunFailed(failed[0], codes[failed[0]], said)


def _follow(worker: "subprocess.Popen[str]", on_event: OnEvent | None, order: ProfileOrder) -> None:
    assert worker.stdout is not None
    with worker.stdout:
        for line in worker.stdout:
            if line.startswith("{") and on_event is not None:
                on_event({**json.loads(line), "processes": order.processes})


def _end(workers: "Sequence[subprocess.Popen[str]]") -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
    for worker in workers:
        try:
            worker.wait(timeout=20)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _merged(root: Path, order: ProfileOrder, folders: Sequence[Path], ended: str) -> MeasuredProfile:
    """One profile of all parts, under the device's folder; the parts' own folders go, but for those of a run that
    `ended` before its time, which the next run goes on with."""
    from cost_models.profiler.writer import folder_name, write_profile

    manifests = [read_manifest(folder) for folder in folders if (folder / MANIFEST_FILE).exists()]
    if not manifests:
        raise BadInput("nothing was measured before the end; give more --minutes")
    points: dict[str, Point] = {}
    for folder in folders:
        for point in read_points(folder / POINTS_FILE):
            points.setdefault(point.key, point)
    if ended:
        point = Point(kind="fact", name="not_run", features={"value": 0.0}, label=ended[:400])
        points[point.key] = point
    first = manifests[0]
    whole: Manifest = first.model_copy(
        update={
            "budget_s": order.budget_s,
            "spent_s": sum(manifest.spent_s for manifest in manifests),
            "complete": not ended and all(manifest.complete for manifest in manifests),
            "cases": sum(manifest.cases for manifest in manifests),
            "clock": ", ".join(dict.fromkeys(manifest.clock for manifest in manifests)),
        }
    )
    folder = root / first.device / folder_name(first.versions)
    write_profile(folder, whole, tuple(points.values()))
    if not ended:
        for part in folders:
            with suppress(OSError):
                shutil.rmtree(part)
    return read_profile(folder)
