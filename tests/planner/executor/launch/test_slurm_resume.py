"""A training job that real Slurm daemons put back goes on from its last checkpoint, and ends as if nothing had been."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.executor.launch.job import LaunchJob
from planner.executor.launch.slurm import SlurmLauncher, SlurmOptions
from tests.planner.executor.launch.processes import processes_of, wait_for
from tests.planner.executor.launch.slurm_cluster import SlurmCluster, running_cluster
from tests.planner.executor.launch.test_slurm import CONFIG

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

SECONDS = 60.0
STEPS, EVERY, BATCH, STOP = 8, 2, 4, 5
DATA = f"""
import itertools, os, time

def rows():
    for number in itertools.count():
        if number >= {STOP * BATCH} and os.environ.get("PLANNER_REQUEUES", "1") == "0":
            time.sleep(600)  # the job's first start gets no further
        yield [(number * 7 + place * 3) % 64 for place in range(17)]
"""


def command(folder: Path, *more: str) -> list[str]:
    """`planner run` of two ranks on one node."""
    question = "--cluster cpu:2 --seq-len 16 --global-batch 4 --precision fp32 --engine torch"
    words = f"{question} --strategy dp=2,zero=1 --data held:rows --steps {STEPS} --json --checkpoint {folder}/kept"
    model = ["--model", str(folder / "config.json"), *words.split(), "--every", str(EVERY)]
    return [sys.executable, "-c", "from planner.cli import main; main()", "run", *model, *more]


def curve_of(report: dict[str, object]) -> list[tuple[int, float]]:
    """Step and loss of every step."""
    steps = report["curve"]
    assert isinstance(steps, list)
    return [(step["step"], step["loss"]) for step in steps]


def undisturbed(folder: Path) -> list[tuple[int, float]]:
    """The same run on this machine."""
    folder.mkdir()
    write_question(folder)
    done = subprocess.run(
        command(folder), capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return curve_of(json.loads(done.stdout))


def write_question(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "held.py").write_text(DATA)


def put_back_once_it_has_kept_something(cluster: SlurmCluster, folder: Path) -> None:
    """Drain the node of the job once a checkpoint is there and no step follows, and requeue it."""
    last = folder / "kept" / f"step-{STOP // EVERY * EVERY:09d}"
    job_file = folder / "run" / "job.json"
    assert wait_for(lambda: last.exists() and job_file.exists(), SECONDS)
    job_id, node = job_and_node(folder)
    cluster.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    cluster.call("scontrol", "requeue", job_id)
    assert node == "n1"  # so that what follows can only run on n2


def job_and_node(folder: Path) -> tuple[str, str]:
    """The job's number, and where it runs or ran."""
    job_id = json.loads((folder / "run" / "job.json").read_text())["job_id"]
    job = LaunchJob("planner-kept", folder / "run", "run.sh", 1, 2, True)
    return job_id, SlurmLauncher(SlurmOptions()).status(job, job_id).nodes[0]


def test_a_job_that_is_put_back_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path / "whole")
    write_question(tmp_path)
    where = "--launcher slurm --nproc 2 --name kept --launch cpus_per_node=2 --resume auto"
    words = [*where.split(), "--log-dir", str(tmp_path / "run")]
    with running_cluster(tmp_path / "slurm", 2) as cluster:
        with subprocess.Popen(
            command(tmp_path, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **cluster.environment},
        ) as process:
            try:
                put_back_once_it_has_kept_something(cluster, tmp_path)
                out, said = process.communicate(timeout=SECONDS)
            finally:
                process.kill()
        assert process.returncode == 0, said
        assert job_and_node(tmp_path)[1] == "n2"
        assert wait_for(lambda: not processes_of(tmp_path / "run"), SECONDS)
    report = json.loads(out)
    assert report["resumed"]["step"] == STOP // EVERY * EVERY
    assert curve_of(report) == expected
