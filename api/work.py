"""Where work of requests runs, bounded: evaluations in threads, questions in processes (api/asking.py)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from starlette.concurrency import run_in_threadpool

from api.errors import Problem
from api.settings import Settings

T = TypeVar("T")

MAX_LINE_BYTES: Final = 256 * 1024**2
RETRY_AFTER_S: Final = 5
CORE_POLL_S: Final = 0.05


class Gate:
    """Lets a number of requests work at once and a number wait; more are sent away with 429.

    `cores` is shared with whatever else fills the cores of this machine, the searches of plans above all.
    """

    def __init__(self, num_working: int, max_waiting: int, cores: threading.Semaphore | None = None) -> None:
        self._working = asyncio.Semaphore(num_working)
        self._max_waiting = max_waiting
        self._cores = cores
        self._waiting = 0

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        return self._waiting

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """A place to work; raises Problem 429 where too many wait already."""
        if self._working.locked() and self._waiting >= self._max_waiting:
            detail = f"{self._waiting} requests are waiting already; ask again in {RETRY_AFTER_S} s"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
        self._waiting += 1
        try:
            await self._working.acquire()
        finally:
            self._waiting -= 1
        try:
            async with self._core():
                yield
        finally:
            self._working.release()

    @asynccontextmanager
    async def _core(self) -> AsyncIterator[None]:
        if self._cores is None:
            yield
            return
        while not self._cores.acquire(blocking=False):
            await asyncio.sleep(CORE_POLL_S)
        try:
            yield
        finally:
            self._cores.release()


class Work:
    """Runs evaluations of one server."""

    def __init__(self, settings: Settings) -> None:
        self._evaluations = Gate(settings.num_evaluations, settings.max_waiting)

    @property
    def num_waiting(self) -> int:
        """Evaluations and the like that wait for a thread."""
        return self._evaluations.num_waiting

    async def evaluate(self, function: Callable[[], T]) -> T:
        """Run a function that takes milliseconds to seconds in a thread."""
        async with self._evaluations.slot():
            return await run_in_threadpool(function)
