"""What of a run is answered: its state with predicted beside measured, logs, metrics, artifacts."""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from api.errors import Problem
from api.runs.folder import EVENTS, RunFolder
from api.runs.store import RunRow, details_of
from api.runs.table import TABLE, table_of

MAX_LOG_BYTES: Final = 256 * 1024
MAX_EVENTS_BYTES: Final = 64 * 1024**2
MAX_METRICS: Final = 5000
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
OF_FOLDER: Final = ("plan.json", "report.json", "run.log")
OF_FILES: Final = re.compile(
    r"(?:events\.jsonl|order\.json|run\.sh|train\.sh|job\.sbatch|jobset\.yaml|trainjob\.yaml|trace_rank[0-9]{1,6}\.json)"
)
FIRST_STEADY: Final = 2


@dataclass(frozen=True, slots=True)
class LogPart:
    """A piece of a log from a byte on; `next` is where the rest begins."""

    lines: list[str]
    next: int


def body_of(row: RunRow, folder: RunFolder) -> dict[str, Any]:
    """The Run object."""
    details = details_of(row)
    steps = [event for event in read_events(folder) if event.get("event") == "step"]
    base = f"/v1/runs/{row.id}"
    return {
        "id": row.id,
        "plan_id": row.plan_id,
        "state": row.state,
        "failure_code": row.failure_code,
        "failure_detail": row.failure_detail,
        "launcher": row.launcher,
        "request": json.loads(row.request),
        "attempt": row.attempt,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "heartbeat_at": row.heartbeat_at,
        "host": str(row.host).partition("/")[0] if row.host else None,
        "progress": _progress(steps),
        **_compared(details, steps),
        "artifacts": artifact_names(folder),
        "links": {
            "self": base,
            "plan": f"/v1/plans/{row.plan_id}",
            "logs": f"{base}/logs",
            "metrics": f"{base}/metrics",
            "cancel": f"{base}/cancel",
        },
    }


def read_events(folder: RunFolder) -> list[dict[str, Any]]:
    """All whole events of a run; a line that a killed writer left torn is skipped."""
    return list(_objects(_plain_bytes(folder.files / EVENTS) or b""))


def metrics_of(folder: RunFolder, after: int) -> list[dict[str, Any]]:
    """Steps later than a number; of a step that was done again after a restart, the last time."""
    steps: dict[int, dict[str, Any]] = {}
    for event in read_events(folder):
        number = event.get("step")
        if event.get("event") == "step" and isinstance(number, int) and number > after:
            steps[number] = {key: value for key, value in event.items() if key != "event"}
    return [steps[number] for number in sorted(steps)][:MAX_METRICS]


def log_of(folder: RunFolder, rank: int | None, after: int) -> LogPart:
    """Lines of a rank (without one: of the run itself) from a byte on; a torn last line is left for later."""
    files = [folder.log] if rank is None else _rank_files(folder, rank)
    raw = _bytes_from(files, after, MAX_LOG_BYTES)
    whole, newline, _ = raw.rpartition(b"\n")
    if not newline and len(raw) < MAX_LOG_BYTES:
        return LogPart([], after)
    taken = whole + newline if newline else raw
    return LogPart(taken.decode("utf-8", "replace").splitlines(), after + len(taken))


def artifact_names(folder: RunFolder) -> list[str]:
    """Names of what can be fetched now."""
    names = [name for name in OF_FOLDER if (folder.path / name).is_file()]
    if folder.files.is_dir():
        names += sorted(path.name for path in folder.files.iterdir() if OF_FILES.fullmatch(path.name))
    done = bool(folder.read("report.json").get("measured")) and (folder.files / "order.json").is_file()
    return [*names, TABLE] if done else names


def artifact_of(folder: RunFolder, run_id: str, name: str) -> bytes:
    """An artifact's bytes; raises Problem 404 for any name that is none of a run's own plain files."""
    missing = Problem(404, "not_found", "no such artifact; the run's `artifacts` names them")
    if not NAME.fullmatch(name):
        raise missing
    if name == TABLE:
        order, report = folder.files / "order.json", folder.read("report.json")
        if not report.get("measured") or not order.is_file():
            raise missing
        return table_of(run_id, _plain_bytes(order) or b"", report).encode("utf-8")
    if name not in OF_FOLDER and not OF_FILES.fullmatch(name):
        raise missing
    found = _plain_bytes((folder.path if name in OF_FOLDER else folder.files) / name)
    if found is None:
        raise missing
    return found


def _plain_bytes(path: Path) -> bytes | None:
    """A plain file's bytes, no link followed: a run may write what it likes into its folder."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    with os.fdopen(number, "rb") as file:
        return file.read(MAX_EVENTS_BYTES)


def _rank_files(folder: RunFolder, rank: int) -> list[Path]:
    """A rank's files in the order of attempts: of a local run, or of a node by its place."""
    logs = folder.files / "logs"
    found = [*logs.glob(f"*/attempt_*/{rank}/*.log")]
    if not found:
        per_node = _per_node(logs)
        node, local = divmod(rank, per_node)
        found = [*logs.glob(f"node-{node}/*/attempt_*/{local}/*.log")]
    if not found:
        found = [path for path in [logs / f"node-{rank}.log"] if path.exists()]
    own = [path for path in found if not path.is_symlink() and path.resolve().is_relative_to(logs.resolve())]
    return sorted(own, key=lambda path: (str(path.parent), path.name))


def _per_node(logs: Path) -> int:
    """Ranks of a node, as many as the first node has folders."""
    ranks = {path.name for path in logs.glob("node-0/*/attempt_*/*") if path.name.isdigit()}
    return max(len(ranks), 1)


def _bytes_from(files: list[Path], after: int, limit: int) -> bytes:
    """Bytes of files one after the other, from a place on."""
    pieces: list[bytes] = []
    left, skip = limit, after
    for path in files:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if skip >= size:
                    skip -= size
                    continue
                file.seek(skip)
                piece = file.read(left)
        except OSError:
            continue
        skip = 0
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            break
    return b"".join(pieces)


def _objects(raw: bytes) -> Iterator[dict[str, Any]]:
    for line in raw.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _progress(steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not steps:
        return None
    last = steps[-1]
    return {key: last.get(key) for key in ("step", "loss", "step_s", "tokens_per_s", "attempt")}


def _compared(details: Mapping[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Predicted, measured and predicted / measured: of the report once there is one, of the steps before."""
    report = details.get("report") or {}
    predicted = report.get("predicted") or details.get("predicted")
    if report.get("measured"):
        return {"predicted": predicted, "measured": report["measured"], "ratio": report.get("ratio")}
    steady = [step for step in steps if isinstance(step.get("step"), int) and step["step"] >= FIRST_STEADY]
    if not steady:
        return {"predicted": predicted, "measured": None, "ratio": None}
    measured = {
        "step_s": median(float(step["step_s"]) for step in steady),
        "peak_bytes": max((max(step.get("memory_bytes") or [0.0]) for step in steady), default=None),
    }
    ratio = {
        key: predicted[key] / measured[key]
        for key in measured
        if predicted and predicted.get(key) and measured[key]
    }
    return {"predicted": predicted, "measured": measured, "ratio": ratio}
