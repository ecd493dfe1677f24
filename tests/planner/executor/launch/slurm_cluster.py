"""A real Slurm on this machine, started as root with its own munge: a controller and nodes that share the machine."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
START_S = 30.0


def why_not() -> str:
    """Why no Slurm can be started here; "" where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (tests/system-packages.txt)"
    return "" if os.geteuid() == 0 else "Slurm's daemons are started as root"


class SlurmCluster:
    """Nodes n1, n2, … of two processors each; `environment` is what its commands need."""

    def __init__(self, folder: Path, num_nodes: int) -> None:
        self.folder = folder
        self.nodes = [f"n{number}" for number in range(1, num_nodes + 1)]
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._munge_started = False

    def start(self) -> None:
        """Start the daemons and wait until every node is idle."""
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "munge").chmod(0o711)
        self._start_munge()
        (self.folder / "slurm.conf").write_text(self._configuration())
        self.call("slurmctld", "-c")
        for node in self.nodes:
            self.call("slurmd", "-N", node)
        deadline = time.monotonic() + START_S
        while self.states() != dict.fromkeys(self.nodes, "idle"):
            assert time.monotonic() < deadline, f"the nodes are {self.states()}"
            time.sleep(0.2)

    def stop(self) -> None:
        """End what was started."""
        for job in self.call("squeue", "-h", "-o", "%A").split():
            self.call("scancel", "--signal=KILL", "--full", job)
            self.call("scancel", job)
        # The daemons end last: a job that is ending without them would stay.
        ended = time.monotonic() + START_S
        while self.call("squeue", "-h", "-o", "%A").split() and time.monotonic() < ended:
            time.sleep(0.2)
        files = [
            *self.folder.glob("slurmd.*.pid"),
            self.folder / "slurmctld.pid",
            self.folder / "munge" / "pid",
        ]
        numbers = [int(path.read_text()) for path in files if path.exists()]
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and any(Path(f"/proc/{number}").exists() for number in numbers):
            time.sleep(0.1)
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def states(self) -> dict[str, str]:
        """State of every node, as sinfo says it."""
        lines = self.call("sinfo", "-h", "-N", "-o", "%N %t").split("\n")
        return dict(line.split() for line in lines if line.strip())

    def call(self, *command: str) -> str:
        """Standard output of one of Slurm's commands."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=START_S, check=False, env=environment
        )
        return done.stdout

    def _start_munge(self) -> None:
        munge = self.folder / "munge"
        key = munge / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        options = {
            "socket": "socket",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        stated = [f"--{option}={munge / name}" for option, name in options.items()]
        self.call("munged", "--force", "--num-threads=2", *stated)
        deadline = time.monotonic() + START_S
        while not (munge / "socket").exists():
            assert time.monotonic() < deadline, "munged did not start"
            time.sleep(0.05)

    def _configuration(self) -> str:
        host, folder = socket.gethostname().partition(".")[0], self.folder
        ports = [free_port() for _ in range(len(self.nodes) + 1)]
        values = {
            "ClusterName": "test",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            # A job that is put back waits until its old credentials have expired: two minutes by default.
            "AuthInfo": f"socket={folder}/munge/socket,cred_expire=5",
            "CredType": "cred/munge",
            "StateSaveLocation": folder / "state",
            "SlurmdSpoolDir": folder / "spool" / "%n",
            "SlurmctldPidFile": folder / "slurmctld.pid",
            "SlurmdPidFile": folder / "slurmd.%n.pid",
            "SlurmctldLogFile": folder / "slurmctld.log",
            "SlurmdLogFile": folder / "slurmd.%n.log",
            # Nothing that a container or a machine with the old cgroups would refuse.
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "AccountingStorageType": "accounting_storage/none",
            "JobCompType": "jobcomp/none",
            "SwitchType": "switch/none",
            "MpiDefault": "none",
            "ReturnToService": 2,
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "SchedulerParameters": "sched_interval=1,bf_interval=1,batch_sched_delay=1",
            "KillWait": 2,
        }
        lines = [f"{key}={value}" for key, value in values.items()]
        for node, port in zip(self.nodes, ports[1:], strict=True):
            where = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
            lines.append(f"NodeName={node} {where} CPUs=2 State=UNKNOWN")
        lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


@contextmanager
def running_cluster(folder: Path, num_nodes: int) -> Iterator[SlurmCluster]:
    """A started cluster whose environment this process has meanwhile; fails where no Slurm can be started."""
    reason = why_not()
    if reason:
        pytest.fail(reason)
    cluster = SlurmCluster(folder, num_nodes)
    try:
        cluster.start()
        with pytest.MonkeyPatch.context() as patch:
            for key, value in cluster.environment.items():
                patch.setenv(key, value)
            yield cluster
    finally:
        cluster.stop()
