"""Real servers as processes, to be asked over HTTP, told to stop, and killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

FAKE_WORKER = Path(__file__).parents[1] / "fake_worker.py"
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys
from api.server import serve
from api.settings import Settings
given = json.loads(sys.argv[1])
serve(Settings(**{**given, "worker_command": tuple(given["worker_command"])}))
"""
START_S = 180.0
NO_ANSWER = 0


class Server:
    """One `planner-server`; its workers carry `tag` on their command line."""

    def __init__(self, tag: str, fake: str = "", **settings: Any) -> None:
        self.tag = tag
        program = ["-S", str(FAKE_WORKER), fake] if fake else ["-P", "-m", "planner.worker"]
        worker = [sys.executable, "-X", f"tag={tag}", *program]
        given = {"port": 0, "starts_jobs": True, "worker_command": worker, "drain_s": 0.3, **settings}
        # A file: a pipe that nobody empties would stop the server once it is full.
        self._log, name = tempfile.mkstemp(prefix="planner-server-log-")
        Path(name).unlink()
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(given, default=str)],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"},
            stderr=self._log,
            stdout=subprocess.DEVNULL,
        )
        self.url = self._url()

    def _url(self) -> str:
        """The address that it says it listens on."""
        deadline = time.monotonic() + START_S
        while self.process.poll() is None and time.monotonic() < deadline:
            for line in self.log().splitlines():
                message = json.loads(line)["message"] if line.startswith("{") and line.endswith("}") else line
                if "running on http" in message:
                    return str(message.split("running on ")[1].split()[0])
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"the server did not start: {self.log()}")

    def log(self) -> str:
        """What it has written."""
        return os.pread(self._log, 1 << 24, 0).decode() if self._log >= 0 else ""

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and value of an answer; status 0 where none came."""
        data = None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")
        except (OSError, ValueError):
            return NO_ANSWER, None

    def until_ready(self) -> "Server":
        """Wait until it takes plans."""
        deadline = time.monotonic() + START_S
        while self.ask("GET", "/readyz")[0] != 200:
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        return self

    def workers(self) -> list[psutil.Process]:
        """Its search processes that live."""
        try:
            return [
                child for child in psutil.Process(self.process.pid).children() if is_worker(child, self.tag)
            ]
        except psutil.Error:
            return []

    def kill(self) -> None:
        """Kill it without a word."""
        self.process.kill()
        self.process.wait()
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def tell_to_stop(self) -> None:
        """Ask it to stop in order; returns at once."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Stop it in order and wait; its exit status."""
        self.tell_to_stop()
        try:
            return self.process.wait(60)
        finally:
            self.kill()


def is_worker(process: psutil.Process, tag: str) -> bool:
    """Whether a process is a search of the servers with a tag."""
    try:
        return f"tag={tag}" in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def all_workers(tag: str) -> list[int]:
    """Every search process of a tag on this machine, whoever started it."""
    return [process.pid for process in psutil.process_iter() if is_worker(process, tag)]
