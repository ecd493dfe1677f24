"""One worker process: its request in, its messages out, what it uses, its end.

The worker ends by itself when its standard input does, so none outlives a server that was killed.
"""

import contextlib
import json
import os
import selectors
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

import planner

READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory of a process in bytes: resident, and addressed."""

    resident_bytes: int
    virtual_bytes: int


class WorkerProcess:
    """A started worker; used by one thread. Leave it with `end`."""

    def __init__(self, command: Sequence[str], request: str) -> None:
        root = str(Path(planner.__file__).resolve().parents[1])
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": root},
            start_new_session=True,  # an interrupt of the server's terminal is the server's to handle
        )
        self._partial = b""
        self._selector = selectors.DefaultSelector()
        self._send(request)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def messages(self, timeout_s: float) -> list[Mapping[str, Any]] | None:
        """What it said since the last call, waiting for a word; None once it has said everything."""
        if not self._selector.select(timeout_s):
            return []
        piece = os.read(self._out, READ_BYTES)
        if not piece:
            return None
        *lines, self._partial = (self._partial + piece).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def usage(self) -> Usage:
        """What it uses now; nothing once it has ended."""
        return usage_of(self.pid)

    def end(self) -> int:
        """Kill it if it lives, wait until it is gone, and close its pipes; its exit status."""
        if self._process.poll() is None:
            self._process.kill()
        status = self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        return status

    def wait(self) -> int:
        """Its exit status, once it has ended by itself."""
        return self._process.wait()

    def _send(self, request: str) -> None:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker has no pipes")
        self._out = self._process.stdout.fileno()
        self._selector.register(self._out, selectors.EVENT_READ)
        with contextlib.suppress(BrokenPipeError):  # it died early; reading tells
            _write_all(self._process.stdin.fileno(), request.encode("ascii") + b"\n")


def usage_of(pid: int) -> Usage:
    """What a process uses now; nothing once it has ended."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.Error:
        return Usage(0, 0)
    return Usage(memory.rss, memory.vms)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
