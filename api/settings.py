"""How one server runs; made once by `planner-server` or by a test, never read from globals."""

import ipaddress
import os
import sys
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from api.keys import FileKey
from cost_models.specs.base import Frozen

MIB: Final = 1024**2
GIB: Final = 1024**3
JOB_VERSION: Final = "1"
"""Rises when the entry of a plan in the queue means something else than before, not with every release."""


class Settings(Frozen):
    """Address, keys and limits of a server; keys of the database are beside those of the key file."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    file_keys: tuple[FileKey, ...] = ()
    database: str | None = None
    """URL of the database; without it a SQLite file in `data_dir`."""
    data_dir: Path | None = None
    """Folder of the server's files; without it one that goes with the application."""
    starts_jobs: bool = False
    """Whether plans are searched from the start on (a server), or from the first one asked for."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 8 * MIB
    max_search_s: Annotated[float, Field(gt=0)] = 600.0
    search_grace_s: Annotated[float, Field(gt=0)] = 60.0
    """How long a search may overrun its own limit before its process is ended."""
    worker_command: tuple[str, ...] = (sys.executable, "-P", "-m", "planner.worker")
    """The search process; -P: the folder that the server was started in is no place for modules."""
    worker_memory_bytes: Annotated[int, Field(ge=1)] = 8 * GIB
    worker_nice: Annotated[int, Field(ge=0, le=19)] = 10
    job_version: Annotated[str, Field(pattern=r"^[0-9A-Za-z._-]{1,64}$")] = JOB_VERSION
    """Servers of one job version take each other's queued plans; see docs/service.md on upgrades."""
    max_queued: Annotated[int, Field(ge=0)] = 100
    drain_s: Annotated[float, Field(ge=0)] = 10.0
    """How long running searches may take to end when the server stops, before they go back into the queue."""
    keep_days: Annotated[float, Field(gt=0)] = 90.0
    max_stored_bytes: Annotated[int, Field(ge=0)] = 10 * GIB
    num_searches: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    num_evaluations: Annotated[int, Field(ge=1)] = 2
    max_waiting: Annotated[int, Field(ge=0)] = 16
    max_per_key: Annotated[int, Field(ge=1)] = 64
    """Requests of one key that compute or change something at once."""
    max_reads_per_key: Annotated[int, Field(ge=1)] = 1000
    """Reads of one key at once; a stream of events is one for as long as it lasts."""
    allow_runs: bool = False
    """Whether plans may be run; everything below is of no use without."""
    run_roots: tuple[Path, ...] = ()
    """Folders whose models and data runs may read."""
    run_factories: tuple[str, ...] = ()
    """Functions (`package.module:function`) that runs may call for a model or for data."""
    run_launch: tuple[str, ...] = ()
    """What launchers are told, as `slurm.partition=gpu` or `kubernetes.image=NAME`."""
    run_command: tuple[str, ...] = (sys.executable, "-P", "-c", "from planner.cli import main; main()")
    run_grace_s: Annotated[float, Field(ge=0, le=20)] = 15.0
    """How long a run that is cancelled may take to end before its processes are killed."""
    max_local_runs: Annotated[int, Field(ge=0)] = 1
    """Runs on one host at once; they share its devices."""
    max_runs: Annotated[int, Field(ge=0)] = 32
    """Runs through other launchers at once."""
    max_queued_runs: Annotated[int, Field(ge=0)] = 100
    host_lost_s: Annotated[float, Field(gt=0)] = 600.0
    """A host that gives no sign of life for so long has lost its local runs."""

    @property
    def worker_address_bytes(self) -> int:
        """Backstop behind the watched memory: threads and mappings make the address space about twice as large."""
        return 2 * self.worker_memory_bytes + 4 * GIB

    @property
    def worker_limits(self) -> tuple[str, ...]:
        """Limits of a process that searches or answers, as its options."""
        return ("--address-bytes", str(self.worker_address_bytes), "--nice", str(self.worker_nice))

    @property
    def worker_arguments(self) -> tuple[str, ...]:
        """The search process with its limits."""
        return (*self.worker_command, *self.worker_limits)

    @property
    def needs_key(self) -> bool:
        """Whether requests carry a bearer key, whatever the database holds."""
        return bool(self.file_keys) or not is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; names other than localhost count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
