"""Questions that take seconds, each in a process of its own, as many at once as there are cores."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import planner
from api.errors import Problem, problem_of_worker
from api.settings import Settings
from api.work import MAX_LINE_BYTES, RETRY_AFTER_S, Gate

START_S: Final = 30.0
"""Room for the start of a process and for what is not a search."""
ACCURACY_S: Final = 120.0


class Asking:
    """Runs questions in processes; each ends with its request."""

    def __init__(self, settings: Settings, cores: threading.Semaphore) -> None:
        self._gate = Gate(settings.num_searches, settings.max_waiting, cores)

    @property
    def num_waiting(self) -> int:
        """Questions that wait for a core."""
        return self._gate.num_waiting

    async def ask(
        self, kind: str, request: Mapping[str, Any], stored: Mapping[str, Any] | None, max_seconds: float
    ) -> dict[str, Any]:
        """The answer to one question; raises Problem."""
        question = json.dumps({"kind": kind, "request": request, "stored": stored})
        async with self._gate.slot():
            try:
                async with asyncio.timeout(max_seconds + START_S):
                    found = await _answer_of(question)
            except TimeoutError:
                detail = f"no answer within {max_seconds + START_S:.0f} s; ask with a smaller max_seconds"
                raise Problem(
                    503, "time_limit", detail, headers={"Retry-After": str(RETRY_AFTER_S)}
                ) from None
        if "problem" in found:
            raise problem_of_worker(found["problem"])
        answer: dict[str, Any] = found["answer"]
        return answer


async def _answer_of(question: str) -> Mapping[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # the folder that the server was started in is no place for modules
        "-m",
        "api.questions",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE_BYTES,
        env={**os.environ, "PYTHONPATH": str(Path(planner.__file__).resolve().parents[1])},
        start_new_session=True,  # an interrupt of the server's terminal is the server's to handle
    )
    try:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the process has no pipes")
        process.stdin.write(question.encode("ascii") + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    if not line:
        raise Problem(500, "worker_died", "the process of the question ended without an answer; ask again")
    answer: dict[str, Any] = json.loads(line)
    return answer


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
                self._known = await self._asking.ask("accuracy", {}, None, ACCURACY_S)
            return self._known
