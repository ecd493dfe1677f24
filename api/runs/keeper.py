"""Keeps the runs of this host: starts their supervisors, takes over what those write, and leaves no process behind.

A run belongs to the host that launched it. Every server looks at all live runs: at those of its own host through
their folders, at the others' only for signs of life. Two servers of one host may look at the same run; each move is
conditional in the database, and a second supervisor of a run ends at once.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import planner
from api.errors import Problem
from api.runs.folder import RunFolder
from api.runs.processes import host_identity, is_alive, kill_run
from api.runs.requests import LaunchRequest, command_of
from api.runs.states import RunState
from api.runs.store import RunRow, Runs, details_of
from api.settings import Settings
from api.store.changes import dump
from api.store.tables import runs as table
from planner.plan_file import now_text

LOCAL: Final = "local"
BUSY_S: Final = 0.3
IDLE_S: Final = 5.0
START_S: Final = 20.0
"""A supervisor that shows no sign of life for so long did not start."""
KILL_S: Final = 5.0
MOST_SUPERVISORS: Final = 20
HEARTBEAT_S: Final = 10.0
SWEEP_S: Final = 60.0

log = logging.getLogger("api.runs")


@dataclass(slots=True)
class Keeper:
    """The keeping of runs by one server; a thread of its own from `start` to `stop`."""

    settings: Settings
    runs: Runs
    data_dir: Path
    host: str = field(default_factory=host_identity)
    _wake: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Look after runs from now on."""
        self._thread = threading.Thread(target=self._work, name="runs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no longer; runs and their supervisors go on."""
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def wake(self) -> None:
        """Something was asked for."""
        self._wake.set()

    def folder_of(self, run_id: str) -> RunFolder:
        """The folder of a run on this host."""
        return RunFolder(self.data_dir.resolve() / "runs" / run_id)

    def look(self) -> bool:
        """One round; whether any run is live."""
        live = self.runs.live()
        for row in live:
            try:
                self._look_at(row, live)
            except (OSError, subprocess.TimeoutExpired) as error:
                log.warning("run %s cannot be looked after: %s", row.id, error)
        return bool(live)

    def sweep(self) -> None:
        """End what is left of runs in a final state whose supervisor did not see to it: the host was thought lost."""
        root = self.data_dir / "runs"
        names = [path.name for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
        open_ends = [name for name in names if self._may_be_left(self.folder_of(name))]
        for run_id in self.runs.ended_among(open_ends):
            folder = self.folder_of(run_id)
            beat = folder.read("heartbeat.json")
            if is_alive(int(beat["process"]), str(beat["start"])):
                os.kill(int(beat["process"]), signal.SIGKILL)
            if kill_run(run_id, KILL_S):
                folder.write("swept.json", {"at": now_text()})

    def _may_be_left(self, folder: RunFolder) -> bool:
        is_over = folder.read("state.json").get("ended_at") or folder.read("swept.json")
        return not is_over and folder.read("heartbeat.json").get("host") == self.host

    def _work(self) -> None:
        swept_s = -SWEEP_S
        while not self._ended.is_set():
            if time.monotonic() - swept_s > SWEEP_S:
                swept_s = time.monotonic() if self._guarded(self.sweep) is None else swept_s
            busy = self._guarded(self.look)
            self._wake.wait(BUSY_S if busy else IDLE_S)
            self._wake.clear()

    def _guarded(self, work: Any) -> Any:
        """What a piece of work gives; True, so that it is soon tried again, where the database is not ready."""
        try:
            return work()
        except Problem:
            return True
        except Exception:
            log.exception("runs cannot be looked after; trying again")
            return None

    def _look_at(self, row: RunRow, live: list[RunRow]) -> None:
        if row.host is None:
            if row.state == RunState.QUEUED and self._has_room(row, live):
                self._launch(row)
        elif row.host == self.host:
            self._mirror(row)
        else:
            self._judge(row)

    def _has_room(self, row: RunRow, live: list[RunRow]) -> bool:
        """Whether another run may start: local ones share this host's devices, the others a number."""
        placed = [other for other in live if other.host is not None and other.id != row.id]
        if row.launcher == LOCAL:
            here = [other for other in placed if other.launcher == LOCAL and other.host == self.host]
            return len(here) < self.settings.max_local_runs
        return len(placed) < self.settings.max_runs

    def _launch(self, row: RunRow) -> None:
        """Make the run ours, write its folder, and start its supervisor."""
        values = {"host": self.host, "started_at": now_text(), "heartbeat_at": now_text()}
        mine = self.runs.move(row.id, RunState.LAUNCHING, values, (table.c.host.is_(None),))
        if mine is not None:
            self._supervise(mine)

    def _supervise(self, row: RunRow) -> None:
        """Start a supervisor for a run of ours; one that is there already makes the new one end at once."""
        folder = self.folder_of(row.id)
        write_folder(folder, row, self.settings)
        root = str(Path(planner.__file__).resolve().parents[1])
        with (folder.path / "supervisor.log").open("ab") as output:
            subprocess.run(
                [sys.executable, "-P", "-m", "api.runs.supervisor", str(folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": _joined(root)},
                start_new_session=True,
                check=False,
                timeout=START_S,
            )

    def _mirror(self, row: RunRow) -> None:
        """Bring the database to where the run's folder is."""
        folder = self.folder_of(row.id)
        if row.state == RunState.CANCELLING and folder.path.is_dir():
            folder.cancel.touch()
        state = folder.read("state.json")
        if state.get("ended_at"):
            self._take_end(row, state)
            return
        reached = state.get("state")
        if reached == RunState.RUNNING and row.state == RunState.LAUNCHING:
            self.runs.move(row.id, RunState.RUNNING)
        beat = folder.read("heartbeat.json")
        if self._is_supervised(beat):
            self._note(row)
        elif beat or _age_s(row.heartbeat_at) > START_S:
            self._replace(row, folder)

    def _is_supervised(self, beat: dict[str, Any]) -> bool:
        own = beat.get("host") == self.host
        return own and is_alive(int(beat["process"]), str(beat["start"]))

    def _replace(self, row: RunRow, folder: RunFolder) -> None:
        """The supervisor is gone: what it left is ended; a job elsewhere is taken up again by its name."""
        beaten = folder.read("heartbeat.json")
        if folder.read("state.json").get("ended_at"):
            return  # it ended since; the next look takes it over
        gone = kill_run(row.id, KILL_S)
        if not gone:
            return
        started = bool(beaten)
        if row.launcher != LOCAL or not started:
            if row.attempt < MOST_SUPERVISORS:
                self.runs.note(row.id, {"attempt": row.attempt + 1, "heartbeat_at": now_text()})
                (folder.path / "heartbeat.json").unlink(missing_ok=True)
                self._supervise(row)
                return
        elif row.state == RunState.CANCELLING:
            self.runs.move(row.id, RunState.CANCELLED)
            return
        self._fail(row, "supervisor_died", "the supervisor of the run was killed; its processes were ended")

    def _take_end(self, row: RunRow, state: dict[str, Any]) -> None:
        to = RunState(state["state"])
        if to is RunState.SUCCEEDED and row.state == RunState.CANCELLING:
            to = RunState.CANCELLED  # it ended before it was asked to, and nothing of it is left
        if to is RunState.SUCCEEDED and row.state == RunState.LAUNCHING:
            self.runs.move(row.id, RunState.RUNNING)
        if to is RunState.CANCELLED and row.state != RunState.CANCELLING:
            self.runs.move(row.id, RunState.CANCELLING)
        details = {**details_of(row), "report": _short(self.folder_of(row.id).read("report.json"))}
        values = {
            "failure_code": state.get("failure_code"),
            "failure_detail": state.get("failure_detail"),
            "details": dump(details),
        }
        self.runs.move(row.id, to, values)

    def _judge(self, row: RunRow) -> None:
        """A run of another host: lost once that host gives no sign of life, or is this one before it booted."""
        same_name = str(row.host).partition("/")[0] == self.host.partition("/")[0]
        if not same_name and _age_s(row.heartbeat_at) < self.settings.host_lost_s:
            return
        if row.launcher == LOCAL:
            self._fail(row, "host_lost", f"host {str(row.host).partition('/')[0]} gives no sign of life")
            return
        taken = {"host": self.host, "heartbeat_at": now_text(), "attempt": row.attempt + 1}
        if self.runs.note(row.id, taken, (table.c.host == row.host,)):
            self._supervise(row)

    def _note(self, row: RunRow) -> None:
        """Say now and then that this host lives."""
        if _age_s(row.heartbeat_at) > HEARTBEAT_S:
            self.runs.note(row.id, {"heartbeat_at": now_text()})

    def _fail(self, row: RunRow, code: str, detail: str) -> None:
        self.runs.move(row.id, RunState.FAILED, {"failure_code": code, "failure_detail": detail})


def write_folder(folder: RunFolder, row: RunRow, settings: Settings) -> None:
    """What the supervisor reads; a folder of an earlier attempt is kept."""
    folder.files.mkdir(parents=True, exist_ok=True)
    details = details_of(row)
    request = LaunchRequest.model_validate_json(row.request)
    folder.write("plan.json", details["plan"])
    folder.write(
        "run.json",
        {
            "run_id": row.id,
            "launcher": row.launcher,
            "grace_s": settings.run_grace_s,
            "command": command_of(row.id, request, folder, settings),
            "environment": {"PYTHONPATH": _joined(str(Path(planner.__file__).resolve().parents[1]))},
        },
    )
    if row.state == RunState.CANCELLING:
        folder.cancel.touch()


def _short(report: dict[str, Any]) -> dict[str, Any]:
    """What of a report is kept in the database: all but the steps."""
    return {key: value for key, value in report.items() if key in ("measured", "predicted", "ratio", "steps")}


def _joined(root: str) -> str:
    """The packages of this server first, then what the operator put on the path for factories."""
    given = os.environ.get("PYTHONPATH", "")
    return root if not given or given == root else f"{root}{os.pathsep}{given}"


def _age_s(stamp: str | None) -> float:
    if stamp is None:
        return 0.0
    then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return (datetime.now(UTC) - then).total_seconds()
