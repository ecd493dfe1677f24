"""The gates that other repositories use: their steps are run as a CI would run them."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
JOBS = """
model: llama-3.2-1b
cluster: dgx-h100:8
job: {seq_len: 2048, global_batch: 32}
jobs:
  - {name: fits, strategy: tp=2}
  - {name: other, strategy: "tp=1,mbs=MICRO,recompute=none"}
"""


@pytest.fixture
def shell(tmp_path):
    """Run a script in an empty folder with `planner` on the PATH."""
    binary = tmp_path / "bin"
    binary.mkdir()
    entry = Path(sys.executable).parent / "planner"
    command = f'#!/bin/sh\nexec {shlex.quote(str(entry))} "$@"\n'
    (binary / "planner").write_text(command)
    (binary / "planner").chmod(0o755)

    def run(script, **environment):
        env = os.environ | environment | {"PATH": f"{binary}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def step(name):
    """A step of the composite action."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    return next(each for each in action["runs"]["steps"] if each["name"] == name)


@pytest.mark.parametrize(("cluster", "strategy", "code"), [("dgx-h100:8", "tp=2", 0), ("l4:1", "mbs=1", 1)])
def test_the_action_annotates_and_fails(shell, tmp_path, cluster, strategy, code):
    text = (
        JOBS.replace("dgx-h100:8", cluster)
        .replace("tp=2", strategy)
        .replace("MICRO", "1" if code == 0 else "32")
    )
    (tmp_path / "planner.yaml").write_text(text)
    summary = tmp_path / "summary.md"
    found = shell(
        step("Check")["run"],
        FILE="planner.yaml",
        BASELINE="planner-baseline.json",
        ARGUMENTS="--max-slowdown 2%",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert found.returncode == code, found.stderr
    assert found.stdout.count("::notice") == 2
    assert ("::error" in found.stdout) is bool(code)
    assert "| job | answer | prediction |" in summary.read_text()


def test_the_gitlab_job_writes_a_report(shell, tmp_path):
    (tmp_path / "planner.yaml").write_text(JOBS.replace("MICRO", "1"))
    job = yaml.safe_load((ROOT / "ci" / "gitlab.yml").read_text())["parallelism-planner"]
    script = "\n".join(line for line in job["script"] if not line.startswith("pip "))
    found = shell(script, **job["variables"])
    assert found.returncode == 0, found.stderr
    suite = ElementTree.fromstring((tmp_path / "planner.xml").read_text())
    assert suite.attrib["tests"] == "2"


def test_the_hook_is_a_command(shell, tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (tmp_path / "planner.yaml").write_text(JOBS.replace("MICRO", "1"))
    found = shell(f"{hook['entry']} planner.yaml --json")
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["passed"] is True
