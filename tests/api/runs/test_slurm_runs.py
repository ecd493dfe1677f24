"""Runs through a real Slurm: the job bears the run's name, gets another supervisor, is gone once cancelled."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.runs.conftest import Serve, launch, processes, until, until_true
from tests.api.runs.test_kills import heartbeat
from tests.planner.executor.launch.slurm_cluster import SlurmCluster, running_cluster

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

COMMAND = (sys.executable, "-P", "-c", "from planner.cli import main; main()")
PATIENCE_S = 150.0
"""Two processes load torch."""
LAUNCH = ("slurm.cpus_per_node=2",)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running_cluster(tmp_path_factory.mktemp("slurm"), 1) as started:
        yield started


def test_a_job_outlives_its_supervisor_and_ends_with_its_run(
    cluster: SlurmCluster, serve_runs: Serve, plan_document: dict[str, Any]
) -> None:
    with serve_runs(run_command=COMMAND, run_launch=LAUNCH, run_grace_s=20.0) as client:
        path = launch(client, plan_document, {"launcher": "slurm", "steps": 100_000, "place": {"time": "10"}})
        until(client, path, "running", "failed", seconds=PATIENCE_S)
        until_true(lambda: client.get(path).json()["progress"], PATIENCE_S)
        jobs = cluster.call("squeue", "-h", "-o", "%A %j %T").split()
        assert jobs[1:] == [f"planner-{path.rpartition('/')[2].replace('_', '-')}"[:40], "RUNNING"]
        os.kill(heartbeat(client, path)["process"], signal.SIGKILL)
        until_true(lambda: client.get(path).json()["attempt"] == 2, PATIENCE_S)
        step = client.get(path).json()["progress"]["step"]
        until_true(lambda: client.get(path).json()["progress"]["step"] > step, PATIENCE_S)
        assert cluster.call("squeue", "-h", "-o", "%A").split() == jobs[:1]
        logs = client.get(f"{path}/logs", params={"rank": 1}).json()
        assert logs["rank"] == 1
        client.post(f"{path}/cancel")
        assert until(client, path, "cancelled", "failed")["state"] == "cancelled"
        assert cluster.call("squeue", "-h", "-o", "%A").split() == []
        assert not processes(path)
        until_true(lambda: not workers_below(path))


def workers_below(path: str) -> list[str]:
    """Command lines that name the run's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if path.rpartition("/")[2] in command:
            found.append(command)
    return found
