"""The queue of jobs on DBOS 3.4; no other module knows it.

One entry is one durable workflow that searches one plan once, under a name of its own. Nothing is ever recovered or
resumed in DBOS: a plan that lost its server gets a new entry under a new name, and the old one is cancelled. So a
cancelled entry never comes back, whichever version runs, and only documented calls of DBOS are used.

DBOS is one object a process. A second queue in a process (as in tests) takes its place.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowSerializationFormat
from sqlalchemy import URL, Engine, create_engine, event

from api.store.engine import POSTGRESQL

QUEUE: Final = "plans"
POLL_S: Final = 0.1
BATCH: Final = 500
KEPT_S: Final = 3600.0
"""How long ended entries are kept, for whoever looks into the database."""
ENDED: Final = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]

Work = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Where entries are kept, who takes them, and how many at once."""

    url: URL
    executor_id: str
    job_version: str
    num_working: int
    is_kept: bool
    """Whether the entries outlive this process."""


class JobQueue:
    """Entries (job name, plan, number) that are handed to `work`, each once, in threads of this process."""

    def __init__(self, settings: QueueSettings, work: Work) -> None:
        self._settings = settings
        self._work = work
        self._engine = _sqlite_engine(settings)

    def start(self) -> None:
        """Open the queue and begin to take entries."""
        DBOS.destroy(destroy_registry=True)
        DBOS(config=self._config())
        work = self._work

        @DBOS.workflow(name="plan", serialization_type=WorkflowSerializationFormat.PORTABLE)
        def plan(plan_id: str, job_number: int) -> None:
            work(plan_id, job_number)

        self._entry = plan
        DBOS.launch()
        DBOS.register_queue(
            QUEUE,
            worker_concurrency=self._settings.num_working,
            polling_interval_sec=POLL_S,
            on_conflict="always_update",
        )

    def put(self, job_id: str, plan_id: str, job_number: int) -> None:
        """Add an entry; the same name again adds nothing."""
        with SetWorkflowID(job_id):
            DBOS.enqueue_workflow(QUEUE, self._entry, plan_id, job_number)

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Give up entries; one that runs is ended by who runs it."""
        for first in range(0, len(job_ids), BATCH):
            DBOS.cancel_workflows(list(job_ids[first : first + BATCH]))

    def missing(self, job_ids: Iterable[str]) -> set[str]:
        """Those names that are not in the queue, waiting or running."""
        wanted = list(job_ids)
        if not wanted:
            return set()
        found = DBOS.list_workflows(
            workflow_ids=wanted,
            status=["ENQUEUED", "PENDING", "DELAYED"],
            load_input=False,
            load_output=False,
        )
        return set(wanted) - {status.workflow_id for status in found}

    def taken_by(self, executor_id: str) -> list[str]:
        """Names of entries that an executor took and has not finished."""
        found = DBOS.list_workflows(
            executor_id=executor_id, status="PENDING", load_input=False, load_output=False
        )
        return [status.workflow_id for status in found]

    def forget_ended(self) -> None:
        """Delete entries that ended a while ago."""
        before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - KEPT_S))
        while True:
            ended = DBOS.list_workflows(
                status=ENDED, end_time=before, limit=BATCH, load_input=False, load_output=False
            )
            if ended:
                DBOS.delete_workflows([status.workflow_id for status in ended])
            if len(ended) < BATCH:
                return

    def stop(self) -> None:
        """Take no more entries and close the queue; the work at hand must have ended."""
        DBOS.destroy(workflow_completion_timeout_sec=0, destroy_registry=True)
        if self._engine is not None:
            self._engine.dispose()

    def _config(self) -> DBOSConfig:
        config: DBOSConfig = {
            "name": "planner",
            "system_database_url": _system_url(self._settings.url),
            "executor_id": self._settings.executor_id,
            "application_version": self._settings.job_version,
            "serializer": DBOSPortableJSONSerializer(),
            "log_level": "WARNING",
            "enable_otlp": False,
        }
        if self._engine is not None:
            config["system_database_engine"] = self._engine
        return config


def _system_url(url: URL) -> str:
    """The same database on PostgreSQL (schema `dbos`), a file of its own beside the SQLite file."""
    if url.get_backend_name() != POSTGRESQL:
        url = url.set(database=f"{url.database}.queue")
    return url.render_as_string(hide_password=False)


def _sqlite_engine(settings: QueueSettings) -> Engine | None:
    """SQLite as DBOS opens it (every transaction takes the write lock), but writing ahead and without waiting for
    the disk at each commit: entries that a loss of power took are found missing and made again.
    """
    if settings.url.get_backend_name() == POSTGRESQL:
        return None
    engine = create_engine(_system_url(settings.url))
    synchronous = "NORMAL" if settings.is_kept else "OFF"

    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in (
            "busy_timeout=30000",
            "foreign_keys=ON",
            "journal_mode=WAL",
            f"synchronous={synchronous}",
        ):
            connection.execute(f"PRAGMA {pragma}").close()

    event.listen(engine, "connect", prepare)
    return engine
