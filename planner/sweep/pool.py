"""Every core at work: requests solved in processes of the standard library's pool, answers as they come.

A worker that dies (of memory, of a signal) takes only its own request with it: the pool is made anew, what else was
on its way is asked again one by one, and a request whose worker dies then gets a `worker_died` row.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice

from planner.request import PlanRequest
from planner.sweep.solve import Row, died, request_text, solve_request, solve_text

WAITING_PER_WORKER = 2
"""Requests handed out ahead; few, so that an interrupt loses little."""

DIED = "its process ended without an answer; it may have run out of memory"

Work = tuple[int, PlanRequest]


def solve_all(requests: Iterable[PlanRequest], jobs: int = 0) -> Iterator[tuple[int, Row]]:
    """Index and row of every request, in the order in which they end; `jobs` 0 takes every core."""
    jobs = jobs or num_cores()
    work = enumerate(requests)
    if jobs == 1:
        for index, request in work:
            yield index, solve_request(request)
        return
    with _Pool(jobs) as pool:
        yield from pool.run(work)


def num_cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass
class _Pool:
    """The standard library's pool, made anew where a worker died."""

    jobs: int
    executor: ProcessPoolExecutor | None = None
    others: frozenset[int | None] = frozenset()
    running: dict[Future[Row], Work] = field(default_factory=dict)

    def __enter__(self) -> "_Pool":
        self.others = frozenset(child.pid for child in multiprocessing.active_children())
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, in the middle of their work where there is any left."""
        if self.executor is None:
            return
        ours = [child for child in multiprocessing.active_children() if child.pid not in self.others]
        is_busy = bool(self.running)
        self.executor.shutdown(wait=not is_busy, cancel_futures=True)
        for child in ours if is_busy else []:
            child.terminate()

    def run(self, work: Iterator[Work]) -> Iterator[tuple[int, Row]]:
        """Rows as they come."""
        while True:
            for task in islice(work, self.jobs * WAITING_PER_WORKER - len(self.running)):
                self._submit(task)
            if not self.running:
                return
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                yield from self._one_by_one()
                continue
            for future in done:
                yield self.running.pop(future)[0], future.result()

    def _one_by_one(self) -> Iterator[tuple[int, Row]]:
        """After a death: keep what had ended, ask the rest one at a time, and name the one that dies again."""
        for future in list(self.running):
            if future.done() and future.exception() is None:
                yield self.running.pop(future)[0], future.result()
        suspects = list(self.running.values())
        for task in suspects:
            self._renew()
            self._submit(task)
            (future,) = self.running
            wait(self.running)
            self.running.clear()
            is_dead = isinstance(future.exception(), BrokenProcessPool)
            yield task[0], died(DIED) if is_dead else future.result()
        self._renew()

    def _renew(self) -> None:
        if self.executor is not None:
            self.executor.shutdown(wait=True, cancel_futures=True)
        self.executor = None
        self.running.clear()

    def _submit(self, task: Work) -> None:
        if self.executor is None:
            context = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(self.jobs, context, _as_worker, (os.getpid(),))
        self.running[self.executor.submit(solve_text, request_text(task[1]))] = task


def _as_worker(parent: int) -> None:
    """A worker leaves interrupts to its parent, and ends when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
