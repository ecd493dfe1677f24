"""The jobs of one server: started, watched over, drained and stopped."""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from api.errors import Problem
from api.jobs.lease import AdvisoryLease, FileLease, lease_of
from api.jobs.queue import JobQueue, QueueSettings
from api.jobs.rescue import Rescue
from api.jobs.solve import Solver, Task
from api.settings import Settings
from api.store import Database
from api.store.moves import State
from api.store.plan_jobs import PlanJobs, count, job_id
from api.store.retention import forget_old
from cost_models.errors import BadInput

SWEEP_S: Final = 0.5
HOUSEKEEPING_S: Final = 60.0
RESTART_S: Final = 1.0
KILL_S: Final = 15.0
"""The most that ended workers may take to be gone; they are killed, so this is the time of a busy database."""

log = logging.getLogger("api")


@dataclass(frozen=True, slots=True)
class Executor:
    """One life of this server among the others: a lease, and what stands on it."""

    plans: PlanJobs
    lease: FileLease | AdvisoryLease
    queue: JobQueue
    rescue: Rescue


class Jobs:
    """Searches of this server. `tell` is called after every change of a plan here.

    When the lease is lost (the database restarted, the connection broke), others may already search the same
    plans: the workers are killed, nothing more is written about them, and a new life begins under a new name.
    """

    def __init__(
        self, settings: Settings, database: Database, tell: Callable[[], None], cores: threading.Semaphore
    ) -> None:
        self._settings = settings
        self._database = database
        self._tell = tell
        self._cores = cores
        self._lock = threading.RLock()
        self._tasks: dict[str, Task] = {}
        self._executor: Executor | None = None
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None
        self.is_draining = False
        self.refusal = ""
        """Why the database cannot be used by this release; empty where it can."""

    @property
    def is_running(self) -> bool:
        """Whether plans are searched now."""
        return self._executor is not None and not self.is_draining

    @property
    def num_tasks(self) -> int:
        """Searches at hand."""
        return len(self._tasks)

    def start(self) -> None:
        """Begin to search plans; raises what the database raises."""
        with self._lock:
            if self._watcher is not None or self.is_draining:
                return
            self._database.prepare()
            self._live()
            self._watcher = threading.Thread(target=self._watch, name="jobs", daemon=True)
            self._watcher.start()

    def start_soon(self) -> None:
        """Begin in a thread, trying until the database is there: a server answers while it migrates."""

        def try_until_started() -> None:
            while not self._stopping.is_set():
                try:
                    self.start()
                    return
                except BadInput as error:
                    self.refusal = error.detail
                    log.error("jobs cannot start: %s", error.detail)
                    return
                except Exception as error:
                    log.warning("jobs: %s: %s; trying again", type(error).__name__, str(error)[:200])
                    self._stopping.wait(RESTART_S)

        threading.Thread(target=try_until_started, name="jobs-start", daemon=True).start()

    def submit(self, plan_id: str, job_number: int) -> None:
        """Put a new plan into the queue; where that fails now, a sweep does it later."""
        self.start()
        executor = self._executor
        if executor is None or self.is_draining:
            return
        try:
            executor.queue.put(job_id(plan_id, job_number), plan_id, job_number)
            executor.plans.mark_queued(plan_id, job_number, self._settings.job_version)
        except Exception as error:  # whatever it is: the plan is written, and the client is told its name
            log.warning("plan %s is not in the queue yet (%s)", plan_id, type(error).__name__)

    def cancel(self, plan_id: str, job_number: int) -> None:
        """End the worker of a plan that was cancelled, if it is here, and its entry in the queue."""
        task = self._tasks.get(plan_id)
        if task is not None:
            task.given_up = True
            task.stop.set()
        elif self._executor is not None:
            try:
                self._executor.queue.cancel([job_id(plan_id, job_number)])
            except Exception as error:  # the entry finds its plan cancelled and does nothing
                log.warning("plan %s: its entry stays (%s)", plan_id, type(error).__name__)

    def count(self, state: State) -> int:
        """Plans of the whole database in a state; none while it cannot be asked."""
        try:
            return count(self._database, state)
        except (SQLAlchemyError, Problem):
            return 0

    def drain(self, grace_s: float) -> None:
        """Take no more plans, let running ones end within `grace_s` seconds, and give the rest back."""
        self.is_draining = True
        self._wait_for_tasks(grace_s)
        for task in self._tasks.copy().values():
            task.stop.set()
        self._wait_for_tasks(KILL_S)

    def stop(self) -> None:
        """Give back what is left and close the queue."""
        self.drain(0.0)
        self._stopping.set()
        with self._lock:  # a start that is under way ends first
            watcher = self._watcher
        if watcher is not None:
            watcher.join()
        executor, self._executor = self._executor, None
        if executor is not None:
            try:
                executor.plans.unregister()
            except SQLAlchemyError as error:
                log.warning("no farewell to the others (%s)", type(error).__name__)
            executor.queue.stop()
            executor.lease.release()

    def _live(self) -> None:
        """Begin a life: a name that no process had before, its lease, its entries."""
        name = f"{uuid.uuid4().hex[:16]}-{os.getpid()}"
        version = self._settings.job_version
        plans = PlanJobs(self._database, name)
        lease = lease_of(self._database, name)
        solver = Solver(self._settings, plans, self._tell, self._cores)
        database = self._database
        entries = QueueSettings(database.url, name, version, self._settings.num_searches, database.is_kept)
        queue = JobQueue(entries, partial(self._work, plans, solver))
        rescue = Rescue(self._database, plans, lease, queue, version)
        lease.hold()
        try:
            plans.register(version, socket.gethostname(), os.getpid())
            queue.start()
            rescue.check_entries()
            rescue.sweep()
        except Exception:
            lease.release()
            queue.stop()
            raise
        self._executor = Executor(plans, lease, queue, rescue)

    def _work(self, plans: PlanJobs, solver: Solver, plan_id: str, job_number: int) -> None:
        """Called by the queue, in a thread for each entry."""
        task = Task(plan_id)
        with self._lock:
            is_free = plan_id not in self._tasks and not self.is_draining
            if is_free:
                self._tasks[plan_id] = task
        try:
            if is_free:
                solver.solve(task, job_number)
        finally:
            with self._lock:
                if self._tasks.get(plan_id) is task:
                    del self._tasks[plan_id]
        if task.attempt == 0:
            # Not begun, and the entry is used up: unless the plan has moved on, it needs another.
            plans.renumber([(plan_id, job_number)])

    def _watch(self) -> None:
        """Sweep and keep house until the end; begin anew where the lease is lost."""
        kept_house_at = time.monotonic()
        suspects: set[tuple[str, int]] = set()
        while not self._stopping.wait(SWEEP_S):
            executor = self._executor
            try:
                if executor is None or not executor.lease.is_held():
                    self._begin_anew()
                    continue
                if self.is_draining:
                    continue
                executor.rescue.sweep()
                suspects = self._heal(executor, suspects)
                if time.monotonic() - kept_house_at > HOUSEKEEPING_S:
                    kept_house_at = time.monotonic()
                    self._keep_house(executor)
            except Exception as error:
                log.warning("jobs: %s: %s; trying again", type(error).__name__, str(error)[:200])

    def _heal(self, executor: Executor, suspects: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Requeue plans that the database says run here, twice in a row, and no thread knows."""
        running = {(plan_id, attempt) for plan_id, attempt in executor.plans.running()}
        strays = {stray for stray in running if stray[0] not in self._tasks}
        for plan_id, attempt in strays & suspects:
            log.warning("plan %s runs nowhere; it is queued again", plan_id)
            executor.plans.requeue(plan_id, attempt)
        return strays - suspects

    def _keep_house(self, executor: Executor) -> None:
        executor.queue.forget_ended()
        executor.rescue.check_entries()
        forget_old(self._database, self._settings.keep_days, self._settings.max_stored_bytes)

    def _begin_anew(self) -> None:
        """Kill what runs here without a word, leave the queue, and live again as soon as the database allows."""
        executor, self._executor = self._executor, None
        if executor is not None:
            log.warning(
                "the lease is lost: %d searches are ended, others may go on with them", self.num_tasks
            )
            for task in self._tasks.copy().values():
                task.given_up = True
                task.stop.set()
            self._wait_for_tasks(KILL_S)
            executor.queue.stop()
            executor.lease.release()
        if self.is_draining:
            return
        self._stopping.wait(RESTART_S)
        self._live()

    def _wait_for_tasks(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self._tasks and time.monotonic() < deadline:
            time.sleep(0.02)
