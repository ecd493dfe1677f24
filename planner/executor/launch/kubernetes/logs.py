"""Log lines of pods, brought into the job's folder; those of the first node that are events, into its events file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from planner.executor.events import EVENTS_FILE
from planner.executor.launch.job import LOGS, NODE_LOG

CURSOR: Final = "cursor.json"
EVENT: Final = '{"event"'


@dataclass(frozen=True, slots=True)
class PodLog:
    """New text of one pod, each line with its time in front, as `kubectl logs --timestamps` gives it."""

    node: int
    pod: str
    text: str


def keep_lines(folder: Path, log: PodLog) -> None:
    """Append what is newer than the last line that was kept."""
    cursors = read_cursors(folder)
    last = cursors.get(log.pod, "")
    stamped = [line.partition(" ") for line in log.text.splitlines()]
    new = [(stamp, text) for stamp, _, text in stamped if stamp > last]
    if not new:
        return
    _append(folder / LOGS / NODE_LOG.format(log.node), [text for _, text in new])
    if log.node == 0:
        events = [event for _, text in new if (event := event_of(text))]
        _append(folder / EVENTS_FILE, events)
    cursors[log.pod] = new[-1][0]
    (folder / LOGS / CURSOR).write_text(json.dumps(cursors), encoding="utf-8")


def event_of(line: str) -> str:
    """The event that a line is, without what torchrun puts in front of it; "" for any other line."""
    _, found, rest = line.partition(EVENT)
    text = found + rest
    try:
        return text if found and isinstance(json.loads(text), dict) else ""
    except ValueError:
        return ""


def read_cursors(folder: Path) -> dict[str, str]:
    """The time of the last line kept of each pod."""
    try:
        known = json.loads((folder / LOGS / CURSOR).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(pod): str(at) for pod, at in known.items()} if isinstance(known, dict) else {}


def _append(path: Path, lines: list[str]) -> None:
    if lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
