"""A private PostgreSQL for tests: a cluster in a temporary folder, on a free port, not run by root."""

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = "postgres"


def programs() -> Path:
    """The folder of initdb and pg_ctl; fails the test where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not folders:
        pytest.fail("PostgreSQL is not installed; apt-get install postgresql")
    return folders[-1]


class Cluster:
    """A cluster that can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._programs = programs()
        self.url = f"postgresql://{USER}@127.0.0.1:{self._port}/postgres"
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", USER, "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        """Serve on loopback."""
        options = f"-k {self._folder} -p {self._port} -c listen_addresses=127.0.0.1 -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        """End at once, every connection with it."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "-w", "stop")

    def dump(self) -> Path:
        """A backup as docs/service.md makes it."""
        place = self._folder / "planner.dump"
        self._run("pg_dump", "--exclude-schema=dbos", "--format=custom", f"--file={place}", self.url)
        return place

    def restore(self, dump: Path, name: str) -> str:
        """Put a backup into a new database; its URL."""
        url = self.url.rpartition("/")[0] + f"/{name}"
        self._run("psql", "-c", f"CREATE DATABASE {name}", self.url)
        self._run("pg_restore", f"--dbname={url}", str(dump))
        return url

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        if os.geteuid() == 0:  # it refuses to run as root
            command = ["runuser", "-u", USER, "--", *command]
        # pg_ctl leaves a server behind that would keep a pipe open.
        with (self._folder / "output").open("w") as output:
            subprocess.run(
                command,
                check=True,
                timeout=120,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd="/",
            )


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def private_cluster() -> Iterator[Cluster]:
    """A running cluster; it goes with everything in it."""
    folder = Path(tempfile.mkdtemp(prefix="planner-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, USER, USER)
    try:
        cluster = Cluster(folder)
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
