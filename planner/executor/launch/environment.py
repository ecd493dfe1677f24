"""What the environment of a worker process needs."""

import os
from collections.abc import Mapping
from typing import Final

from planner.executor.request import RunOrder

WORKER_MODULE: Final = "planner.executor.worker"
LAUNCHER_PID: Final = "PLANNER_LAUNCHER_PID"
# Each freed block above this goes back to the system at once, so that resident bytes follow what is allocated. Read
# by glibc when a process starts (mallopt(3)).
MALLOC_SETTINGS: Final[Mapping[str, str]] = {
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_MMAP_THRESHOLD_": "65536",
}


def process_settings(order: RunOrder, *, on_cpu: bool) -> dict[str, str]:
    """What must be set before a worker starts, on any launcher."""
    settings = dict(MALLOC_SETTINGS) if on_cpu else {}
    if order.situation.engine.options.expandable_segments:
        settings["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return settings


def worker_environment(order: RunOrder, *, on_cpu: bool) -> dict[str, str]:
    """What the workers of this machine need: settings, their share of the cores, whose children they are."""
    return process_settings(order, on_cpu=on_cpu) | {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(threads_of(order.world_size)),
        LAUNCHER_PID: str(os.getpid()),
    }


def threads_of(processes: int) -> int:
    """Threads of each of so many processes that share this machine's cores."""
    return max(len(os.sched_getaffinity(0)) // processes, 1)
