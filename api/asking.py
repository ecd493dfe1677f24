"""Questions that take seconds, each in a process of its own, as many at once as there are cores."""

import asyncio
import json
import os
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import planner
from api.errors import Problem, problem_of_worker
from api.jobs.process import Usage, usage_of
from api.jobs.solve import MEMORY_LIMIT, SIGABRT, WORKER_DIED
from api.settings import Settings
from api.work import MAX_LINE_BYTES, RETRY_AFTER_S, Gate

START_S: Final = 30.0
"""Room for the start of a process and for what is not a search."""
ACCURACY_S: Final = 120.0
LOOK_S: Final = 0.2
"""How often memory is looked at, and whether whoever asked is still there."""
GONE: Final = 499
"""What the log says of a request whose caller has gone; nobody is there to read it."""

IsGone = Callable[[], Awaitable[bool]]


class Asking:
    """Runs questions in processes; each ends with its request."""

    def __init__(self, settings: Settings, cores: threading.Semaphore) -> None:
        self._settings = settings
        self._gate = Gate(settings.num_searches, settings.max_waiting, cores)

    @property
    def num_waiting(self) -> int:
        """Questions that wait for a core."""
        return self._gate.num_waiting

    async def ask(
        self, kind: str, question: Mapping[str, Any], max_seconds: float, is_gone: IsGone | None = None
    ) -> dict[str, Any]:
        """The answer to a question of one kind (its `request`, its `stored` plan); raises Problem."""
        text = json.dumps({"kind": kind, **question})
        async with self._gate.slot():
            try:
                async with asyncio.timeout(max_seconds + START_S):
                    found = await self._answer_of(text, is_gone or _never)
            except TimeoutError:
                detail = f"no answer within {max_seconds + START_S:.0f} s; ask with a smaller max_seconds"
                raise Problem(
                    503, "time_limit", detail, headers={"Retry-After": str(RETRY_AFTER_S)}
                ) from None
        if "problem" in found:
            raise problem_of_worker(found["problem"])
        answer: dict[str, Any] = found["answer"]
        return answer

    async def _answer_of(self, question: str, is_gone: IsGone) -> Mapping[str, Any]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # the folder that the server was started in is no place for modules
            "-m",
            "api.questions",
            *self._settings.worker_limits,
            stdin=PIPE,
            stdout=PIPE,
            limit=MAX_LINE_BYTES,
            env={**os.environ, "PYTHONPATH": str(Path(planner.__file__).resolve().parents[1])},
            start_new_session=True,  # an interrupt of the server's terminal is the server's to handle
        )
        try:
            return await self._follow(process, question, is_gone)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _follow(self, process: Process, question: str, is_gone: IsGone) -> Mapping[str, Any]:
        """What a process answers, unless it grows too large or nobody waits for it any more."""
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        process.stdin.write(question.encode("ascii") + b"\n")
        await process.stdin.drain()
        reading = asyncio.ensure_future(process.stdout.readline())
        usage = Usage(0, 0)
        try:
            while not (await asyncio.wait({reading}, timeout=LOOK_S))[0]:
                usage = usage_of(process.pid)
                if usage.resident_bytes > self._settings.worker_memory_bytes:
                    return {"problem": self._out_of_memory(usage.resident_bytes)}
                if await is_gone():
                    raise Problem(GONE, "gone", "whoever asked has gone")
        finally:
            reading.cancel()
        if line := reading.result():
            answer: dict[str, Any] = json.loads(line)
            return answer
        near = 0.8 * self._settings.worker_address_bytes
        if await process.wait() == SIGABRT and usage.virtual_bytes > near:
            return {"problem": self._out_of_memory(usage.virtual_bytes)}
        raise Problem(500, WORKER_DIED, "the process of the question ended without an answer; ask again")

    def _out_of_memory(self, used_bytes: int) -> dict[str, Any]:
        used, limit = used_bytes / 1e9, self._settings.worker_memory_bytes / 1e9
        detail = f"the answer took {used:.2f} GB of {limit:.2f} GB; ask for less at once"
        return {"code": MEMORY_LIMIT, "detail": detail, "pointer": "", "allowed": []}


async def _never() -> bool:
    return False


class Accuracy:
    """Predictions beside published runs, counted once; every caller waits for the same answer."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._lock = asyncio.Lock()
        self._known: dict[str, Any] | None = None

    async def read(self) -> dict[str, Any]:
        """The answer; raises Problem."""
        async with self._lock:
            if self._known is None:
                self._known = await self._asking.ask("accuracy", {}, ACCURACY_S)
            return self._known
