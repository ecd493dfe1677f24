"""Submits a job once, follows it to its end, and ends it when this process is asked to end."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from planner.errors import RunFailed
from planner.executor.events import EVENTS_FILE
from planner.executor.launch.job import LOGS, JobPhase, JobStatus, Launcher, LaunchFailed, LaunchJob

SUBMITTED: Final = "job.json"
CANCEL_S: Final = 30.0
"""A launcher that is asked to end a job has this long to say that it is over."""
PATIENCE: Final = 30
"""Looks at a job that may fail in a row (a controller that restarts) before it is given up."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
MAX_WORDS: Final = 2000

OnStatus = Callable[[str, JobStatus], None]


@dataclass(frozen=True, slots=True)
class Followed:
    """A job that was followed to its end."""

    job_id: str
    status: JobStatus


def submit_once(launcher: Launcher, job: LaunchJob) -> str:
    """The id of the job: of the one submitted before under this name, else of a new one."""
    job_id = launcher.find(job) or launcher.submit(job)
    note = {"job_id": job_id, "name": job.name, "launcher": type(launcher).__name__}
    (job.folder / SUBMITTED).write_text(json.dumps(note) + "\n", encoding="utf-8")
    return job_id


def forget_other_job(folder: Path, name: str) -> None:
    """Remove what a job of another name left in the folder, so that its events are not taken for this one's."""
    note = folder / SUBMITTED
    try:
        known = json.loads(note.read_text(encoding="utf-8"))["name"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    if known != name:
        for path in (note, folder / EVENTS_FILE, folder / LOGS / "cursor.json"):
            path.unlink(missing_ok=True)


def follow(launcher: Launcher, job: LaunchJob, on_status: OnStatus | None = None) -> Followed:
    """Submit the job (or take up the one of this name) and wait for its end.

    SIGINT, SIGTERM and SIGHUP, in the main thread, cancel the job; this then raises KeyboardInterrupt or SystemExit
    with 128 + the signal once it is over.
    """
    with _caught_signals() as caught:
        job_id = submit_once(launcher, job)
        status = _wait(launcher, job, job_id, (caught, on_status))
    if caught.number == signal.SIGINT:
        raise KeyboardInterrupt
    if caught.number:
        raise SystemExit(128 + caught.number)
    return Followed(job_id, status)


def cancel_and_wait(launcher: Launcher, job: LaunchJob, job_id: str, seconds: float = CANCEL_S) -> JobStatus:
    """End the job and wait until it is over; raises LaunchFailed where that takes longer."""
    launcher.cancel(job, job_id)
    deadline = time.monotonic() + seconds
    while True:
        status = launcher.status(job, job_id)
        if status.phase.is_final:
            return status
        if time.monotonic() > deadline:
            what = f"job {job_id} is still {status.phase.value} {seconds:.0f} s after it was cancelled"
            raise LaunchFailed(f"{what}; look at it with the launcher's own commands")
        time.sleep(min(launcher.poll_s, 1.0))


def first_words(job: LaunchJob, status: JobStatus) -> RunFailed:
    """The failure of a job that ended badly: the rank that failed first, else the job's own words."""
    errors = [found for path in job.folder.glob(f"{LOGS}/**/error.json") if (found := _error_of(path, job))]
    if errors:
        _, rank, message = min(errors)
        return RunFailed(rank, status.exit_code or 1, message)
    tail = _last_lines(job.folder / LOGS)
    what = f"the job ended as {status.reason or status.phase.value}. {tail}"
    return RunFailed(0, status.exit_code or 1, what[:MAX_WORDS])


def _wait(
    launcher: Launcher, job: LaunchJob, job_id: str, watch: "tuple[_Caught, OnStatus | None]"
) -> JobStatus:
    caught, on_status = watch
    seen: JobStatus | None = None
    failures = 0
    while True:
        if caught.number:
            return cancel_and_wait(launcher, job, job_id)
        try:
            status = launcher.status(job, job_id)
            launcher.fetch(job, job_id)
            failures = 0
        except LaunchFailed:
            failures += 1
            if failures >= PATIENCE:
                raise
        else:
            if status != seen and on_status is not None:
                on_status(job_id, status)
            seen = status
            if status.phase.is_final:
                return status
        caught.event.wait(launcher.poll_s)


def _error_of(path: Path, job: LaunchJob) -> tuple[float, int, str] | None:
    """When, which rank and what, from an error file of torch's elastic agent (logs/node-N/*/attempt_K/LOCAL)."""
    try:
        message: Any = json.loads(path.read_text(encoding="utf-8"))["message"]
        local = int(path.parent.name)
        node = int(path.relative_to(job.folder / LOGS).parts[0].removeprefix("node-"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
    at = extra.get("timestamp", "0")
    text = message.get("message", message) if isinstance(message, dict) else message
    return float(at) if str(at).isdigit() else 0.0, node * job.per_node + local, str(text)[:MAX_WORDS]


def _last_lines(logs: Path) -> str:
    """The last words of the newest log of a node; the launcher's own log only where the nodes said nothing."""
    files = sorted(logs.glob("node-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [*files, logs / "job.log"]:
        if not path.exists():
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if lines:
            return f"Last line of {path.name}: {lines[-1][:500]}"
    return "No log was written."


def status_line(job_id: str, status: JobStatus) -> dict[str, object]:
    """An event of `--progress jsonl`."""
    values = {"event": "job", "job_id": job_id, **asdict(status)}
    return values | {"phase": status.phase.value, "nodes": list(status.nodes)}


def has_ended_badly(status: JobStatus) -> bool:
    """Whether a final job did not do its work."""
    return status.phase is not JobPhase.SUCCEEDED


@dataclass(slots=True)
class _Caught:
    """The first signal that came."""

    event: threading.Event
    number: int = 0


@contextmanager
def _caught_signals() -> Iterator[_Caught]:
    """Signals that ask for an end are kept for a while; outside the main thread none is."""
    caught = _Caught(threading.Event())

    def keep(number: int, _frame: FrameType | None) -> None:
        caught.number = caught.number or number
        caught.event.set()

    if threading.current_thread() is not threading.main_thread():
        yield caught
        return
    before = {each: signal.signal(each, keep) for each in SIGNALS}
    try:
        yield caught
    finally:
        for each, handler in before.items():
            signal.signal(each, handler if handler is not None else signal.SIG_DFL)
