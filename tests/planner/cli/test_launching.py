"""`planner run --launcher`: what is written, refused and started without a cluster; scripts of other frameworks."""

import json
from pathlib import Path

import pytest
import yaml

from planner.executor.launch.registry import settings_of
from tests.planner.cli.conftest import Run

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
TORCH = "--engine torch --strategy tp=2,dp=8"
MEGATRON = "--engine megatron --strategy tp=2,dp=8"


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Options of a job of two nodes of eight GPUs."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return f"--model {path} --cluster dgx-h100:16 --seq-len 16 --global-batch 16"


def test_a_dry_run_for_slurm_writes_the_batch_script(run: Run, job: str, tmp_path: Path) -> None:
    where = (
        f"--launcher slurm --launch partition=h100 --launch time=60 --restarts 2 --dry-run -o {tmp_path}/out"
    )
    found = run(f"run {job} {TORCH} {where} --name night --json")
    assert found.code == 0, found.err
    names = [Path(path).name for path in json.loads(found.out)["files"]]
    assert names == ["order.json", "run.sh", "job.sbatch"]
    batch = (tmp_path / "out" / "job.sbatch").read_text().splitlines()
    for line in (
        "job-name=planner-night",
        "nodes=2",
        "gres=gpu:8",
        "exclusive",
        "partition=h100",
        "time=60",
        "requeue",
    ):
        assert f"#SBATCH --{line}" in batch
    script = (tmp_path / "out" / "run.sh").read_text()
    # tp is the innermost axis: its two ranks are neighbours on one node, and a node's number is given.
    assert "--nnodes=2" in script
    assert "--nproc-per-node=8" in script
    assert "--node-rank=" in script
    assert "rdzv" not in script


def test_a_dry_run_for_kubernetes_writes_both_manifests(run: Run, job: str, tmp_path: Path) -> None:
    where = f"--launcher kubernetes --launch namespace=ml --dry-run -o {tmp_path}/out --json"
    found = run(f"run {job} {TORCH} {where}")
    assert found.code == 0, found.err
    for kind, name in (("JobSet", "jobset.yaml"), ("TrainJob", "trainjob.yaml")):
        files, work = yaml.safe_load_all((tmp_path / "out" / name).read_text())
        assert work["kind"] == kind
        assert work["metadata"]["namespace"] == "ml"
        assert json.loads(files["data"]["order.json"])["strategy"]["tp"] == 2


@pytest.mark.parametrize("launcher", ["slurm", "kubernetes"])
def test_an_engine_with_a_script_of_its_own_is_exported(
    run: Run, job: str, tmp_path: Path, launcher: str
) -> None:
    found = run(f"run {job} {MEGATRON} --launcher {launcher} --dry-run -o {tmp_path}/out --json")
    assert found.code == 0, found.err
    assert "--tensor-model-parallel-size 2" in (tmp_path / "out" / "train.sh").read_text()
    if launcher == "slurm":
        assert "exec bash train.sh" in (tmp_path / "out" / "job.sbatch").read_text()
    else:
        files, _ = yaml.safe_load_all((tmp_path / "out" / "jobset.yaml").read_text())
        assert "train.sh" in files["data"]


def test_a_script_is_run_here_and_its_exit_code_told(run: Run, job: str, tmp_path: Path) -> None:
    script = tmp_path / "edited.sh"
    script.write_text('echo "$NNODES $NODE_RANK" > place; exit 3\n')
    found = run(f"run {job} {MEGATRON} --script {script} --json")
    assert found.code == 1
    assert json.loads(found.out)["exit_code"] == 3
    assert (tmp_path / "place").read_text() == "1 0\n"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--launch partition=a", ("--launch is for --launcher slurm or kubernetes",)),
        ("--launcher slurm --launch partition --dry-run -o out", ("'partition' is not KEY=VALUE",)),
        ("--launcher slurm --launch partitoin=a --dry-run -o out", ("did you mean partition",)),
        ("--launcher kubernetes --launch kind=pod --dry-run -o out", ("kind", "'jobset' or 'trainjob'")),
        ("--launcher slurm --nproc 3 --dry-run -o out", ("16 processes are no multiple of 3",)),
        ("--detach", ("--detach is for --launcher",)),
    ],
)
def test_what_cannot_be_launched_is_refused(run: Run, job: str, more: str, words: tuple[str, ...]) -> None:
    found = run(f"run {job} {TORCH} {more} --json")
    assert (found.code, found.out) == (2, "")
    for word in words:
        assert word in found.err


def test_no_slurm_is_said(run: Run, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.executor.launch.slurm.launcher.shutil.which", lambda _name: None)
    found = run(f"run {job} {TORCH} --launcher slurm --json")
    assert (found.code, found.out) == (2, "")
    assert "sbatch, squeue, scontrol, scancel not found on this machine" in found.err


def test_settings_keep_what_slurm_reads_as_text() -> None:
    assert settings_of(("time=60", "cpus_per_node=8", "exclusive=false", "extra=--mail-type=END")) == {
        "time": "60",
        "cpus_per_node": 8,
        "exclusive": False,
        "extra": "--mail-type=END",
    }
