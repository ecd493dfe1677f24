"""Jobs on a real Slurm of two nodes: submitted once, followed, cancelled, put back, their ranks where they belong."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.executor.launch.follow import cancel_and_wait, first_words, follow, submit_once
from planner.executor.launch.job import JobPhase, LaunchJob
from planner.executor.launch.slurm import SlurmLauncher, SlurmOptions
from tests.planner.executor.launch.processes import processes_of, wait_for
from tests.planner.executor.launch.slurm_cluster import SlurmCluster, running_cluster

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]

SECONDS = 40.0
QUICK = SlurmLauncher(SlurmOptions(cpus_per_node=1), poll_s=0.2)
CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 64,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with running_cluster(tmp_path_factory.mktemp("slurm"), 2) as started:
        yield started


def job_of(folder: Path, name: str, script: str, *, num_nodes: int = 1, restarts: int = 0) -> LaunchJob:
    (folder / "run.sh").write_text(script)
    return LaunchJob(f"planner-{name}", folder, "run.sh", num_nodes, 1, True, restarts)


@pytest.mark.usefixtures("cluster")
def test_every_node_runs_the_script_with_its_place(tmp_path: Path) -> None:
    script = (
        'echo "$NODE_RANK $NNODES $SLURMD_NODENAME $MASTER_ADDR $RUN_DIR" > "$RUN_DIR/node-$NODE_RANK.txt"'
    )
    seen: list[JobPhase] = []
    job = job_of(tmp_path, "place", script, num_nodes=2)
    followed = follow(QUICK, job, lambda _, status: seen.append(status.phase))
    assert followed.status.phase is JobPhase.SUCCEEDED
    assert followed.status.nodes == ("n1", "n2")
    assert seen[-1] is JobPhase.SUCCEEDED
    for rank in (0, 1):
        # Node 0 is the first host of the list, and the rendezvous is at its address.
        words = (tmp_path / f"node-{rank}.txt").read_text().split()
        assert words == [str(rank), "2", f"n{rank + 1}", "127.0.0.1", str(tmp_path)]


@pytest.mark.usefixtures("cluster")
def test_a_job_is_submitted_once(tmp_path: Path) -> None:
    job = job_of(tmp_path, "once", "sleep 100")
    first = submit_once(QUICK, job)
    assert submit_once(QUICK, job) == first
    assert json.loads((tmp_path / "job.json").read_text())["job_id"] == first
    assert cancel_and_wait(QUICK, job, first).phase is JobPhase.CANCELLED


@pytest.mark.usefixtures("cluster")
def test_a_cancelled_job_leaves_no_process(tmp_path: Path) -> None:
    script = (
        f"trap '' TERM; python3 -c 'import time; time.sleep(300)' {tmp_path} & sleep 300 & wait; sleep 300"
    )
    job = job_of(tmp_path, "stop", script, num_nodes=2)
    job_id = submit_once(QUICK, job)
    assert wait_for(lambda: len(processes_of(tmp_path)) >= 2, SECONDS)
    assert cancel_and_wait(QUICK, job, job_id).phase is JobPhase.CANCELLED
    assert wait_for(lambda: not processes_of(tmp_path), SECONDS)


@pytest.mark.usefixtures("cluster")
def test_a_failure_has_its_code_and_its_last_line(tmp_path: Path) -> None:
    job = job_of(tmp_path, "fail", "echo the disk is full >&2; exit 7")
    followed = follow(QUICK, job)
    assert (followed.status.phase, followed.status.exit_code) == (JobPhase.FAILED, 7)
    assert "the disk is full" in str(first_words(job, followed.status))


def test_a_drained_node_gives_its_job_to_another(cluster: SlurmCluster, tmp_path: Path) -> None:
    script = 'echo "$SLURMD_NODENAME $PLANNER_REQUEUES" >> "$RUN_DIR/starts"; [ "$PLANNER_REQUEUES" = 1 ] || sleep 300'
    job = job_of(tmp_path, "drained", script)
    job_id = submit_once(QUICK, job)
    assert wait_for((tmp_path / "starts").exists, SECONDS)
    node = QUICK.status(job, job_id).nodes[0]
    other = {"n1": "n2", "n2": "n1"}[node]
    cluster.call("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        cluster.call("scontrol", "requeue", job_id)
        followed = follow(QUICK, job)
    finally:
        cluster.call("scontrol", "update", f"nodename={node}", "state=resume")
    assert followed.job_id == job_id
    assert (followed.status.phase, followed.status.restarts) == (JobPhase.SUCCEEDED, 1)
    assert (tmp_path / "starts").read_text().splitlines() == [f"{node} 0", f"{other} 1"]


@pytest.mark.usefixtures("cluster")
def test_a_job_of_several_nodes_that_fails_is_put_back(tmp_path: Path) -> None:
    script = 'echo "$NODE_RANK $PLANNER_REQUEUES" >> "$RUN_DIR/starts"; [ "$PLANNER_REQUEUES" = 1 ]'
    job = job_of(tmp_path, "again", script, num_nodes=2, restarts=1)
    assert follow(QUICK, job).status.phase is JobPhase.SUCCEEDED
    assert sorted((tmp_path / "starts").read_text().splitlines()) == ["0 0", "0 1", "1 0", "1 1"]


@pytest.mark.usefixtures("cluster")
def test_a_plan_is_trained_on_two_nodes(tmp_path: Path) -> None:
    command = run_command(tmp_path, "--steps", "2")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ran"]
    assert report["steps"] == 2
    assert report["predicted"]["step_s"] > 0
    # Rank 1 stands on the second node, whose torchrun names its folder.
    assert list(tmp_path.glob("run/logs/node-1/*/attempt_0/0/stderr.log"))


@pytest.mark.usefixtures("cluster")
def test_an_interrupted_command_cancels_its_job(tmp_path: Path) -> None:
    command = run_command(tmp_path, "--steps", "100000", "--name", "interrupted")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        folder = tmp_path / "run"
        assert wait_for(
            lambda: (folder / "events.jsonl").exists() and (folder / "job.json").exists(), SECONDS
        )
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        killer = threading.Timer(SECONDS, process.kill)
        killer.start()
        process.communicate()
        killer.cancel()
    assert process.returncode == 128 + signal.SIGTERM
    job_id = json.loads((folder / "job.json").read_text())["job_id"]
    job = LaunchJob("planner-interrupted", folder, "run.sh", 2, 1, True)
    assert QUICK.status(job, job_id).phase is JobPhase.CANCELLED


def run_command(folder: Path, *more: str) -> list[str]:
    """`planner run` of two ranks on two nodes, from a folder that all nodes see."""
    (folder / "config.json").write_text(json.dumps(CONFIG))
    question = "--cluster cpu:2 --seq-len 16 --global-batch 4 --precision fp32 --engine torch --strategy dp=2"
    where = "--launcher slurm --nproc 1 --json --launch cpus_per_node=1"
    words = [*question.split(), *where.split(), "--log-dir", str(folder / "run"), *more]
    model = ["--model", str(folder / "config.json")]
    return [sys.executable, "-c", "from planner.cli import main; main()", "run", *model, *words]
