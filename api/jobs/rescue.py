"""What a server does for others: dead servers' plans, plans without an entry, entries that nobody can take."""

import logging

from api.jobs.lease import AdvisoryLease, FileLease
from api.jobs.queue import JobQueue
from api.store import Database
from api.store.plan_jobs import PlanJobs, entry_of, job_id, take_over, take_over_unknown
from api.store.tables import plans as plans_table

log = logging.getLogger("api")

Entries = list[tuple[str, int]]


class Rescue:
    """Sweeps over the database; every server does them, whoever comes first wins."""

    def __init__(
        self,
        database: Database,
        plans: PlanJobs,
        lease: FileLease | AdvisoryLease,
        queue: JobQueue,
        version: str,
    ) -> None:
        self._database = database
        self._plans = plans
        self._lease = lease
        self._queue = queue
        self._version = version

    def sweep(self) -> int:
        """Everything once; how many plans went into the queue."""
        self._take_over()
        self._adopt_stranded()
        return self._enqueue()

    def check_entries(self) -> None:
        """Queue anew what should have an entry of this version and has none (a lost or restored queue)."""
        ours = self._plans.queued(plans_table.c.job_version == self._version)
        missing = self._queue.missing([job_id(*entry) for entry in ours])
        self._plans.renumber([entry for entry in ours if job_id(*entry) in missing])

    def _take_over(self) -> None:
        void: Entries = []
        for executor_id in self._plans.others():
            with self._lease.if_dead(executor_id) as connection:
                if connection is not None:
                    # Entries that it took without getting to begin: their plans are still queued.
                    taken = [entry_of(name) for name in self._queue.taken_by(executor_id)]
                    found = take_over(connection, executor_id, taken)
                    log.warning("server %s is dead; %d of its plans go on", executor_id, len(found))
                    void += found
        if self._plans.has_unknown():
            with self._database.write() as connection:
                void += take_over_unknown(connection)
        self._cancel(void)

    def _adopt_stranded(self) -> None:
        """The rule of an upgrade: entries of a job version that no living server runs are queued anew."""
        stranded = self._plans.stranded()
        if stranded:
            self._plans.renumber(stranded)
            self._cancel(stranded)

    def _enqueue(self) -> int:
        entries = self._plans.unqueued()
        for plan_id, number in entries:
            self._queue.put(job_id(plan_id, number), plan_id, number)
            self._plans.mark_queued(plan_id, number, self._version)
        return len(entries)

    def _cancel(self, entries: Entries) -> None:
        if entries:
            self._queue.cancel([job_id(*entry) for entry in entries])
