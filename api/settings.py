"""How one server runs; made once by `planner-server` or by a test, never read from globals."""

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from cost_models.specs.base import Frozen

MIB: Final = 1024**2


class Settings(Frozen):
    """Address, keys and limits of a server; `key_sha256` holds the SHA-256 of every accepted bearer key."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    key_sha256: tuple[str, ...] = ()
    database: str | None = None
    """URL of the database; without it a SQLite file in `data_dir`."""
    data_dir: Path | None = None
    """Folder of the server's files; without it one that goes with the application."""
    max_body_bytes: Annotated[int, Field(ge=1)] = 8 * MIB
    max_search_s: Annotated[float, Field(gt=0)] = 600.0
    search_grace_s: Annotated[float, Field(gt=0)] = 60.0
    """How long a search may overrun its own limit before its process is ended."""
    num_searches: Annotated[int, Field(ge=1)] = Field(default_factory=lambda: os.cpu_count() or 1)
    num_evaluations: Annotated[int, Field(ge=1)] = 2
    max_waiting: Annotated[int, Field(ge=0)] = 16
    max_plans: Annotated[int, Field(ge=1)] = 1000
    max_plan_bytes: Annotated[int, Field(ge=1)] = 256 * MIB

    @property
    def needs_key(self) -> bool:
        """Whether requests carry a bearer key."""
        return bool(self.key_sha256)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; names other than localhost count as reachable."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
