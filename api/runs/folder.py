"""The folder of a run, shared by its supervisor and the server. The standard library alone.

run.json        what the supervisor starts: written by the server
plan.json       the plan file
heartbeat.json  the supervisor: process, start, time
state.json      how far the run is: written by the supervisor alone
cancel          stands here once the run shall end
report.json     standard output of the run: its report, or its failure
run.log         standard error of the run
files/          the run's own folder: events, logs of ranks, scripts, traces, checkpoints
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

EVENTS: Final = "events.jsonl"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def files(self) -> Path:
        """The run's own folder."""
        return self.path / "files"

    @property
    def log(self) -> Path:
        """Standard error of the run."""
        return self.path / "run.log"

    @property
    def report(self) -> Path:
        """Standard output of the run."""
        return self.path / "report.json"

    @property
    def cancel(self) -> Path:
        """The request to end."""
        return self.path / "cancel"

    def read(self, name: str) -> dict[str, Any]:
        """A JSON object of the folder; an empty one where there is none yet."""
        try:
            values = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    def write(self, name: str, values: Mapping[str, object]) -> None:
        """Write a JSON object whole or not at all."""
        draft = self.path / f".{name}-{os.getpid()}"
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / name)
