"""Where work runs: searches in processes of their own, evaluations in threads, both bounded."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

import planner
from api.errors import Problem, problem_of_worker
from api.settings import Settings
from planner.request import PlanRequest

T = TypeVar("T")

MAX_LINE_BYTES: Final = 256 * 1024**2
RETRY_AFTER_S: Final = 5


class Gate:
    """Lets a number of requests work at once and a number wait; more are sent away with 429."""

    def __init__(self, num_working: int, max_waiting: int) -> None:
        self._working = asyncio.Semaphore(num_working)
        self._max_waiting = max_waiting
        self._waiting = 0

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
            yield
        finally:
            self._working.release()


class Work:
    """Runs searches and evaluations of one server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._searches = Gate(settings.num_searches, settings.max_waiting)
        self._evaluations = Gate(settings.num_evaluations, settings.max_waiting)

    async def evaluate(self, function: Callable[[], T]) -> T:
        """Run a function that takes milliseconds to seconds in a thread."""
        async with self._evaluations.slot():
            return await run_in_threadpool(function)

    async def search(self, request: PlanRequest) -> dict[str, Any]:
        """The plan document of a request, made by a process of its own; raises Problem."""
        async with self._searches.slot():
            limit_s = float(request.search.max_seconds) + self._settings.search_grace_s
            try:
                async with asyncio.timeout(limit_s):
                    answer = await _run_worker(request.model_dump_json())
            except TimeoutError:
                detail = f"the search did not end within {limit_s:.0f} s; ask with a smaller max_seconds"
                raise Problem(
                    503, "time_limit", detail, headers={"Retry-After": str(RETRY_AFTER_S)}
                ) from None
        if "problem" in answer:
            raise problem_of_worker(answer["problem"])
        document: dict[str, Any] = answer["document"]
        return document


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work, which is cancelled when the client goes away."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Problem(503, "client_gone", "the client went away; ask again")
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _run_worker(request: str) -> Mapping[str, Any]:
    """Start a worker, hand it the request, and take its last line; the worker ends with this call."""
    root = str(Path(planner.__file__).resolve().parents[1])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the folder that the server was started in is no place for modules
        "-m",
        "planner.worker",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        env={**os.environ, "PYTHONPATH": root},
        start_new_session=True,  # an interrupt of the server's terminal is the server's to handle
    )
    try:
        return await _last_line(process, request)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _last_line(process: asyncio.subprocess.Process, request: str) -> Mapping[str, Any]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker has no pipes")
    process.stdin.write(request.encode("utf-8") + b"\n")
    await process.stdin.drain()
    async for line in process.stdout:
        message: dict[str, Any] = json.loads(line)
        if "progress" not in message:
            return message
    raise Problem(500, "worker_died", "the search process ended without an answer; ask again")
