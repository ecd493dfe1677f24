"""One plan on this server, from its entry in the queue to a final state or back into the queue."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy.exc import SQLAlchemyError

from api.jobs.process import Usage, WorkerProcess
from api.jobs.progress import Progress, of_result
from api.settings import Settings
from api.store.changes import PlanRow, dump
from api.store.moves import State
from api.store.plan_jobs import PlanJobs

POLL_S: Final = 0.1
LOOK_S: Final = 0.4
"""How often the database is asked whether the plan is still ours; a cancel is seen within this time."""
SAY_S: Final = 0.5
"""The least time between two notes of progress; a better plan is noted at once."""
RETRY_S: Final = 0.5
SIGABRT: Final = -6

log = logging.getLogger("api")

MEMORY_LIMIT: Final = "memory_limit"
TIME_LIMIT: Final = "time_limit"
WORKER_DIED: Final = "worker_died"


@dataclass(slots=True)
class Task:
    """One attempt at work here; `stop` ends it, and whoever sets `given_up` may no longer write about it."""

    plan_id: str
    attempt: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: the state that follows (None: the plan is not ours, QUEUED: back), and what is written."""

    to: State | None
    problem: Mapping[str, Any] | None = None
    document: Mapping[str, Any] | None = None


class Solver:
    """Searches plans with workers; `tell` is called after every change."""

    def __init__(
        self, settings: Settings, plans: PlanJobs, tell: Callable[[], None], cores: threading.Semaphore
    ) -> None:
        self._settings = settings
        self._plans = plans
        self._tell = tell
        self._cores = cores

    def solve(self, task: Task, job_number: int) -> None:
        """Bring a plan to its end, unless it is cancelled, taken away or given back meanwhile."""
        while not self._cores.acquire(timeout=POLL_S):
            if task.stop.is_set():
                return
        try:
            row = None if task.stop.is_set() else self._plans.begin(task.plan_id, job_number)
            if row is not None:
                task.attempt = row.attempt
                self._tell()
                self._attempt(task, row)
                self._tell()
        finally:
            self._cores.release()

    def _attempt(self, task: Task, row: PlanRow) -> None:
        progress = Progress()
        try:
            ending = self._search(task, row, progress)
        except Exception:
            log.exception("plan %s: attempt %d failed", task.plan_id, task.attempt)
            detail = "internal error while the search was followed; the log has the rest"
            ending = Ending(State.FAILED, _problem("internal_error", detail))
        self._end(task, ending, progress)

    def _search(self, task: Task, row: PlanRow, progress: Progress) -> Ending:
        limit_s = float(json.loads(row.request)["search"]["max_seconds"]) + self._settings.search_grace_s
        try:
            worker = WorkerProcess(self._settings.worker_arguments, row.request)
        except OSError as error:
            return Ending(
                State.FAILED, _problem(WORKER_DIED, f"no process could be started ({error.strerror})")
            )
        try:
            return self._follow(task, worker, progress, limit_s)
        finally:
            worker.end()

    def _follow(self, task: Task, worker: WorkerProcess, progress: Progress, limit_s: float) -> Ending:
        """Take what a worker says until it has answered or must be ended."""
        notes = _Notes(self._plans, task, self._tell)
        deadline, usage = time.monotonic() + limit_s, Usage(0, 0)
        while True:
            said = worker.messages(POLL_S)
            if said is None:
                return self._died(worker, usage)
            for message in said:
                if "progress" not in message:
                    return _ending_of(message)
                notes.add(*progress.update(message["progress"]))
            if task.stop.is_set():
                return Ending(None if task.given_up else State.QUEUED)
            if not notes.are_ours(progress):
                return Ending(None)
            usage = worker.usage()
            if usage.resident_bytes > self._settings.worker_memory_bytes:
                return Ending(State.FAILED, self._out_of_memory(usage))
            if time.monotonic() > deadline:
                detail = f"the search did not end within {limit_s:.0f} s; ask with a smaller max_seconds"
                return Ending(State.FAILED, _problem(TIME_LIMIT, detail))

    def _died(self, worker: WorkerProcess, usage: Usage) -> Ending:
        status = worker.wait()
        near = 0.8 * self._settings.worker_address_bytes
        if status == SIGABRT and usage.virtual_bytes > near:
            return Ending(State.FAILED, self._out_of_memory(usage))
        detail = f"the search process ended without an answer (status {status}); ask again"
        return Ending(State.FAILED, _problem(WORKER_DIED, detail))

    def _out_of_memory(self, usage: Usage) -> dict[str, Any]:
        used, limit = usage.resident_bytes / 1e9, self._settings.worker_memory_bytes / 1e9
        detail = f"the search used {used:.2f} GB of {limit:.2f} GB; pin an axis or ask for fewer alternatives"
        return _problem(MEMORY_LIMIT, detail)

    def _end(self, task: Task, ending: Ending, progress: Progress) -> None:
        """Write the ending; while the database is away, try until it is back or the plan is taken from us."""
        while ending.to is not None and not task.given_up:
            try:
                if ending.to is State.QUEUED:
                    self._plans.requeue(task.plan_id, task.attempt)
                else:
                    values = _values(ending, progress)
                    self._plans.finish(task.plan_id, task.attempt, ending.to, values)
                return
            except SQLAlchemyError as error:
                log.warning(
                    "plan %s cannot be written (%s); trying again", task.plan_id, type(error).__name__
                )
                time.sleep(RETRY_S)


class _Notes:
    """When progress is written: a better plan at once, bounds not more often than `SAY_S`."""

    def __init__(self, plans: PlanJobs, task: Task, tell: Callable[[], None]) -> None:
        self._plans, self._task, self._tell = plans, task, tell
        self._is_new = self._is_incumbent = False
        self._said_at = self._looked_at = time.monotonic()

    def add(self, is_new: bool, is_incumbent: bool) -> None:
        """Something was said by the worker."""
        self._is_new |= is_new
        self._is_incumbent |= is_incumbent

    def are_ours(self, progress: Progress) -> bool:
        """Write what is due, or look; False where the plan is no longer ours."""
        now = time.monotonic()
        try:
            if self._is_incumbent or (self._is_new and now - self._said_at >= SAY_S):
                is_incumbent, self._is_new, self._is_incumbent = self._is_incumbent, False, False
                self._said_at = self._looked_at = now
                task, said = self._task, progress.to_json()
                is_ours = self._plans.progress(task.plan_id, task.attempt, said, is_incumbent=is_incumbent)
                self._tell()
                return is_ours
            if now - self._looked_at >= LOOK_S:
                self._looked_at = now
                return self._plans.owns(self._task.plan_id, self._task.attempt)
        except SQLAlchemyError as error:
            log.warning("plan %s: no database (%s)", self._task.plan_id, type(error).__name__)
        return True


def _ending_of(message: Mapping[str, Any]) -> Ending:
    if "problem" in message:
        return Ending(State.FAILED, message["problem"])
    return Ending(State.SUCCEEDED, None, message["document"])


def _values(ending: Ending, progress: Progress) -> dict[str, Any]:
    """What is written with a final state: inputs, result and versions as the worker gave them."""
    if ending.document is None:
        return {"problem": dump(ending.problem), "progress": dump(progress.to_json())}
    document = ending.document
    progress.update(of_result(document["result"]))
    request, result = dump(document["request"]), dump(document["result"])
    return {
        "request": request,
        "result": result,
        "progress": dump(progress.to_json()),
        "made_with": dump(document["made_with"]),
        "num_bytes": len(request) + len(result),
    }


def _problem(code: str, detail: str) -> dict[str, Any]:
    return {"code": code, "detail": detail, "pointer": "", "allowed": []}
