"""Lines that rank 0 writes into a file and the launcher reads while the run goes on, one JSON object each."""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO

from planner.answers import finite

EVENTS_FILE: Final = "events.jsonl"
POLL_S: Final = 0.05

Event = Mapping[str, Any]


class EventWriter:
    """Writes events; every line is there when `write` returns. Ranks other than the first have no writer.

    A restart goes on in the file of the attempt before it; a new run begins it anew. `copy` gets every line too: what
    a run shows that no launcher of ours follows.
    """

    def __init__(self, run_dir: Path, *, attempt: int = 0, copy: TextIO | None = None) -> None:
        self._file = (run_dir / EVENTS_FILE).open("a" if attempt else "w", encoding="utf-8")
        self._copy = copy
        self._lock = threading.Lock()
        if self._file.tell():
            # The attempt before may have been killed within a line.
            self._file.write("\n")

    def write(self, event: Event) -> None:
        """One line."""
        line = json.dumps(finite(dict(event)), allow_nan=False) + "\n"
        with self._lock:  # checkpoints are told of by the thread that writes them
            for file in (self._file, self._copy):
                if file is not None:
                    file.write(line)
                    file.flush()

    def close(self) -> None:
        """No more events."""
        self._file.close()


class EventReader:
    """Collects the events of a run while a `with` block lasts, calling `on_event` with each as it comes."""

    def __init__(self, run_dir: Path, on_event: Callable[[Event], None] | None) -> None:
        self._path = run_dir / EVENTS_FILE
        self._on_event = on_event
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._offset = 0
        self.events: list[Event] = []

    def __enter__(self) -> "EventReader":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._end.wait(POLL_S):
            self._read()
        self._read()

    def _read(self) -> None:
        """All whole lines that are new; what is left of a line whose writer was killed is no event."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole, newline, _ = content.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.splitlines():
            event = _event_of(line)
            if event is None:
                continue
            self.events.append(event)
            if self._on_event is not None:
                self._on_event(event)


def _event_of(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
