"""The images, really built: plan and server run in the first as uid 1000 on a read-only root, a run in the other."""

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.images import Image, stop, why_not
from tests.planner.executor.launch.slurm_cluster import free_port

KEY = "a-key-of-this-test-alone-0123456789"
QUESTION = {
    "model": {"kind": "catalog", "name": "llama-3.2-1b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
    "job": {"seq_len": 2048, "global_batch": 32},
    "search": {"max_seconds": 30},
}
SECONDS = 120.0


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    reason = why_not()
    if reason:
        pytest.fail(reason)
    kept = os.environ.get("PLANNER_IMAGES")  # a folder that keeps the base from one run to the next
    folder = Path(kept) if kept else tmp_path_factory.mktemp("images")
    yield folder
    if not kept:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def image(work: Path) -> Iterator[Image]:
    image = Image(work, "Dockerfile")
    yield image
    image.remove()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.mark.matrix
def test_a_plan_is_made_on_a_read_only_root(image: Image, data: Path) -> None:
    assert image.user == "1000:1000"
    job = "--model llama-3.2-1b --cluster dgx-h100:8 --seq-len 2048 --global-batch 32 --max-seconds 30"
    done = image.run(data, "planner", "plan", *job.split(), "-o", "plan.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"]["fits"]
    assert (data / "plan.json").stat().st_uid == 1000
    probe = "id -u; touch /opt/planner/x || echo refused; python -c 'import torch' 2>&1 | tail -n 1"
    assert image.run(data, "sh", "-c", probe).stdout.splitlines()[0:2] == ["1000", "refused"]
    assert "No module named 'torch'" in image.run(data, "sh", "-c", probe).stdout


@pytest.mark.matrix
def test_the_server_answers_from_a_read_only_root(image: Image, data: Path) -> None:
    (data / "keys").write_text(f"plan {KEY}\n")
    port = free_port()
    words = f"planner-server --host 0.0.0.0 --port {port} --data-dir /data --key-file /data/keys"
    process = image.start(data, *words.split())
    try:
        until_ready(f"http://127.0.0.1:{port}/readyz")
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Prefer": "wait=30"}
        body = json.dumps(QUESTION).encode()
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/plans", body, headers)
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            plan: dict[str, Any] = json.loads(answer.read())
        assert plan["state"] in ("succeeded", "running", "queued")
        assert (data / "planner.sqlite").stat().st_uid == 1000
    finally:
        stop(process)


@pytest.fixture(scope="module")
def with_torch(work: Path) -> Iterator[Image]:
    torch = os.environ.get("PLANNER_TORCH", "torch==2.13.0")
    image = Image(work, "Dockerfile.torch", "--build-arg", f"TORCH={torch}")
    yield image
    image.remove()


@pytest.fixture
def tiny(data: Path) -> Path:
    """A data volume with a model's config."""
    (data / "config.json").write_text(json.dumps(TINY))
    return data


@pytest.mark.matrix
def test_a_plan_is_trained_in_the_image_with_torch(with_torch: Image, tiny: Path) -> None:
    assert with_torch.user == "1000:1000"
    done = with_torch.run(tiny, "planner", "run", *JOB, "--strategy", "dp=2", "--steps", "2", "--json")
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)
    assert (ran["steps"], ran["world_size"]) == (2, 2)


@pytest.mark.matrix
def test_a_profile_is_measured_there_and_used(with_torch: Image, tiny: Path) -> None:
    words = [*JOB, "--minutes", "0.2", "--no-grid", "-o", "/data/measured", "--json"]
    done = with_torch.run(tiny, "planner", "profile", *words)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured["measured"] > 0
    command = " ".join(
        ["PARALLELISM_PLANNER_MEASURED=/data/measured planner evaluate", *JOB, "--strategy dp=2 --json"]
    )
    used = json.loads(with_torch.run(tiny, "sh", "-c", command).stdout)
    assert Path(measured["folder"]).name in json.dumps(used["provenance"])


JOB = (
    *("--model", "config.json", "--cluster", "cpu:2", "--seq-len", "16", "--global-batch", "4"),
    *("--precision", "fp32", "--engine", "torch"),
)
TINY = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "vocab_size": 64,
}


def until_ready(url: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < deadline, url
            time.sleep(0.2)
