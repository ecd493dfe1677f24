"""The wheel, installed into empty environments, plans and serves without the checkout."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# `make test` keeps the wheels of the core and the server there, so no network is needed here.
WHEELS = Path(sys.prefix) / "wheels"
JOB = "--model llama-3.1-8b --cluster dgx-h100:8 --seq-len 4096 --global-batch 64"
SERVER_START_S = 60.0

# One worker builds and installs once for the whole file.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh environment and the empty directory that commands run in."""

    prefix: Path
    work: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run an installed program, without anything of this checkout in its surroundings."""
        program = str(self.prefix / "bin" / arguments[0])
        return subprocess.run(
            [program, *arguments[1:]],
            cwd=self.work,
            env=clean_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def clean_environment() -> dict[str, str]:
    """The surroundings of a user: no Python path, no active environment."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "COVERAGE", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def install(prefix: Path, requirement: str) -> None:
    """Install into the environment at prefix, from kept wheels where there are some."""
    source = ["--no-index", "--find-links", str(WHEELS)] if WHEELS.is_dir() else []
    pip = [sys.executable, "-m", "pip", "--python", str(prefix / "bin" / "python"), "install", "--quiet"]
    command = [*pip, "--no-compile", "--constraint", str(ROOT / "constraints.txt"), *source, requirement]
    answer = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if answer.returncode != 0 and not source:
        pytest.skip(f"pip cannot install here, and `make test` has kept no wheels: {answer.stderr[-300:]}")
    assert answer.returncode == 0, answer.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without extras."""
    prefix = tmp_path_factory.mktemp("core") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    install(prefix, str(wheel))
    return Installed(prefix, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def server(core: Installed, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with [server], beside the bare one so that order does not matter."""
    prefix = tmp_path_factory.mktemp("server") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    install(prefix, f"{wheel}[server]")
    return Installed(prefix, core.work)


@pytest.fixture
def server_url(server: Installed, tmp_path: Path) -> Iterator[str]:
    """Address of a planner-server that has started, stopped afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(server.prefix / "bin" / "planner-server"), "--port", str(port)]
    log = tmp_path / "log.txt"
    with log.open("w") as lines:
        process = subprocess.Popen(
            command, cwd=server.work, env=clean_environment(), stdout=lines, stderr=lines
        )
    try:
        wait_for(port, process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return once the server listens; fail at once when it has ended."""
    deadline = time.monotonic() + SERVER_START_S
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    pytest.fail(f"no answer after {SERVER_START_S} s: {log.read_text()}")


def test_core_has_no_extras(core: Installed) -> None:
    for module in ("torch", "transformers", "fastapi", "uvicorn", "pytest"):
        answer = core.run("python", "-c", f"import {module}")
        assert "ModuleNotFoundError" in answer.stderr, module


def test_profiles_travel_with_the_wheel(core: Installed) -> None:
    answer = core.run("planner", "catalog", "models", "--json")
    assert answer.returncode == 0, answer.stderr
    assert "llama-3.1-8b" in answer.stdout


def test_plan_runs_from_an_empty_directory(core: Installed) -> None:
    answer = core.run("planner", "plan", *JOB.split(), "--json")
    assert answer.returncode == 0, answer.stderr
    plan = json.loads(answer.stdout)
    assert plan["status"] in {"optimal", "feasible"}
    assert plan["best"]["fits"] is True
    assert plan["certificate"]["lower_bound_s"] <= plan["best"]["step_s"]


def test_check_runs_from_an_empty_directory(core: Installed) -> None:
    strategy = "tp=2,pp=1,recompute=full"
    answer = core.run("planner", "check", *JOB.split(), "--strategy", strategy, "--json")
    assert answer.returncode == 0, answer.stderr
    check = json.loads(answer.stdout)
    assert check["fits"] is True
    assert check["strategy"]["tp"] == 2
    assert check["margin_bytes"] > 0


def test_a_bad_request_is_refused_cleanly(core: Installed) -> None:
    answer = core.run("planner", "check", *JOB.split(), "--strategy", "tp=3", "--json")
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "Traceback" not in answer.stderr


def test_server_answers(server_url: str) -> None:
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with no_proxy.open(f"{server_url}/healthz", timeout=30) as answer:
        assert answer.status == 200
        json.load(answer)


def test_the_page_and_its_files_travel_with_the_wheel(server_url: str) -> None:
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for path in (
        "/",
        "/page/app.js",
        "/page/timeline.js",
        "/page/echarts.common.min.js",
        "/page/example.json",
    ):
        with no_proxy.open(server_url + path, timeout=30) as answer:
            assert answer.status == 200
            assert len(answer.read()) > 500


def test_a_report_is_written_without_extras(core: Installed) -> None:
    answer = core.run("planner", "evaluate", *JOB.split(), "--strategy", "tp=2", "--report", "tp2.html")
    assert answer.returncode == 0, answer.stderr
    page = (core.work / "tp2.html").read_text()
    assert "Content-Security-Policy" in page
    assert len(page) > 500_000  # the plotting library is inside


def test_server_without_its_extra_says_what_to_install(core: Installed) -> None:
    answer = core.run("planner-server", "--port", "0")
    assert answer.returncode == 2
    assert "[server]" in answer.stderr
    assert "Traceback" not in answer.stderr
