"""One run from its start to its end: `python -m api.runs.supervisor FOLDER`. The standard library alone.

It has a session of its own, so that it outlives the server, and is the parent of whatever loses its own, so that it
finds every process of the run. It writes a final state only once none of them is left. A second supervisor of the
same run ends at once.

A run that is cancelled has a final state within CANCEL_S: `cancelled` where nothing of it is left, else `failed` with
what may be left; of a launcher's job it goes on asking for the end.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from api.runs.folder import EVENTS, RunFolder
from api.runs.processes import MARKER, REAPS, host_identity, kill_run, start_of

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
POLL_S: Final = 0.1
HEARTBEAT_S: Final = 1.0
KILL_S: Final = 5.0
CANCEL_S: Final = 28.0
"""From the request to the final state; whoever reads the state looks every few tenths of a second."""
END_JOB_S: Final = 12.0
"""Of these, what is kept for a launcher's job whose run did not end it in time."""
AGAIN_S: Final = 20.0
ASK_AGAIN_S: Final = 3600.0
"""How often, and how long, a launcher that did not end a job in time is asked again."""
MAX_DETAIL: Final = 2000
STARTED: Final = '"phase": "running"'


@dataclass(slots=True)
class Supervisor:
    """The supervision of one run."""

    folder: RunFolder
    spec: dict[str, Any]
    state: dict[str, Any] = field(default_factory=dict)
    stopped: bool = False
    _beaten_s: float = 0.0
    _asked_s: float | None = None
    """When the end was asked for, by the monotonic clock."""

    def supervise(self) -> None:
        """Start the run, follow it, end it where asked, and write down how it ended."""
        self._move("launching", started_at=_now())
        signal.signal(signal.SIGTERM, self._stop)
        with self.folder.report.open("wb") as report, self.folder.log.open("ab") as log:
            try:
                child = self._start(report, log)
            except OSError as error:
                self._end("failed", "start_failed", f"the run cannot be started ({error.strerror})")
                return
            code = self._follow(child)
        if code is None:
            return  # stopped; the job of a launcher goes on, and another supervisor takes it up
        left = not kill_run(self.spec["run_id"], KILL_S, os.getpid())
        is_cancelled = self.state["state"] == "cancelling"
        if is_cancelled and code != 128 + signal.SIGTERM and not self._end_job(self._left_s()):
            words = (
                f"the launcher's job may still run and is asked to end again; {_last_line(self.folder.log)}"
            )
            self._end("failed", "cancel_failed", words)
            self._ask_again()
            return
        self._conclude(code, left)

    def _left_s(self) -> float:
        """What is left of the time in which a cancelled run ends."""
        asked_s = time.monotonic() if self._asked_s is None else self._asked_s
        return max(asked_s + CANCEL_S - time.monotonic(), 1.0)

    def _end_job(self, seconds: float) -> bool:
        """Whether no job of a launcher is left; the run was ended before it could see to that itself."""
        if self.spec["launcher"] == "local":
            return True
        with self.folder.log.open("ab") as log:
            words = [*self.spec["command"], "--cancel"]
            try:
                done = subprocess.run(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=seconds, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                return False
        return done.returncode == 0

    def _ask_again(self) -> None:
        """The run has its final state; its job is asked to end until it has, or this is stopped."""
        until_s = time.monotonic() + ASK_AGAIN_S
        while time.monotonic() < until_s and not self.stopped:
            time.sleep(AGAIN_S)
            if self._end_job(AGAIN_S):
                self.folder.write("swept.json", {"at": _now()})
                return

    def _start(self, report: Any, log: Any) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if key != REAPS}
        return subprocess.Popen(
            self.spec["command"],
            stdin=subprocess.DEVNULL,
            stdout=report,
            stderr=log,
            cwd=self.folder.files,
            env={**environment, **self.spec.get("environment", {}), MARKER: self.spec["run_id"]},
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - this process has one thread
        )

    def _follow(self, child: "subprocess.Popen[bytes]") -> int | None:
        """The exit code of the run, None where this supervisor was stopped and leaves a launcher's job alone."""
        grace_s = self.spec["grace_s"]
        if self.spec["launcher"] != "local":
            grace_s = min(grace_s, CANCEL_S - END_JOB_S)
        while (code := child.poll()) is None:
            self._beat(child.pid)
            if self.stopped and self.spec["launcher"] != "local":
                child.kill()
                child.wait()
                return None
            if self._asked_s is None and (self.folder.cancel.exists() or self.stopped):
                self._asked_s = time.monotonic()
                self._move("cancelling")
                child.terminate()
            if self._asked_s is not None and time.monotonic() - self._asked_s > grace_s:
                kill_run(self.spec["run_id"], KILL_S, os.getpid())
            if self.state["state"] == "launching" and self._has_started():
                self._move("running")
            time.sleep(POLL_S)
        return code

    def _conclude(self, code: int, left: bool) -> None:
        if left:
            self._end(
                "failed", "processes_left", f"processes outlive SIGKILL by {KILL_S:.0f} s; look at the host"
            )
        elif self.stopped and not self.folder.cancel.exists():
            self._end("failed", "supervisor_stopped", "the run's supervisor was asked to end")
        elif self.state["state"] == "cancelling":
            self._end("cancelled", None, None)
        elif code == 0:
            self._move("running")
            self._end("succeeded", None, None)
        else:
            self._end("failed", *self._failure(code))

    def _failure(self, code: int) -> tuple[str, str]:
        """Code and words of a run that ended badly."""
        failure = self.folder.read("report.json").get("failure")
        if isinstance(failure, dict):
            kind = failure.get("kind")
            words = str(failure.get("message", ""))
            return (kind if isinstance(kind, str) and kind else "rank_failed"), words[:MAX_DETAIL]
        words = _last_line(self.folder.log)
        if code < 0:
            return "killed", f"the run was ended by signal {-code}; {words}"[:MAX_DETAIL]
        return {2: "refused", 3: "internal_error"}.get(code, "run_failed"), words[:MAX_DETAIL]

    def _has_started(self) -> bool:
        events = self.folder.files / EVENTS
        if events.exists() and events.stat().st_size > 0:
            return True
        return STARTED in self.folder.log.read_text(encoding="utf-8", errors="replace")

    def _beat(self, child: int) -> None:
        now = time.monotonic()
        if now - self._beaten_s >= HEARTBEAT_S:
            self._beaten_s = now
            own = {"process": os.getpid(), "start": start_of(os.getpid()), "host": host_identity()}
            self.folder.write("heartbeat.json", {**own, "child": child, "at": _now()})

    def _move(self, state: str, **more: object) -> None:
        if self.state.get("state") != state:
            self.state = {**self.state, **more, "state": state}
            self.folder.write("state.json", self.state)

    def _end(self, state: str, code: str | None, detail: str | None) -> None:
        self._move(state, failure_code=code, failure_detail=detail, ended_at=_now())

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stopped = True


def main(folder: Path) -> int:
    """Supervise the run of a folder unless somebody does."""
    run = RunFolder(folder)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return 0
        if run.read("state.json").get("ended_at"):
            return 0
        os.environ[REAPS] = "1"
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        run.files.mkdir(exist_ok=True)
        supervisor = Supervisor(run, run.read("run.json"))
        # Known before anything is started, so that a server that starts now finds this process.
        supervisor._beat(0)
        supervisor.supervise()
    return 0


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) + ".000Z"


def _last_line(log: Path) -> str:
    """The last line that is no event."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    plain = [line for line in lines if line and not line.startswith("{")]
    return plain[-1][:1000] if plain else "it said nothing"


if __name__ == "__main__":
    # No child of the server: it is not the server's to wait for, and does not end with it.
    if os.fork() == 0:
        sys.exit(main(Path(sys.argv[1])))
