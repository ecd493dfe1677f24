"""Heavy libraries are loaded by the command that needs them, never by importing the planner."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "ortools", "pandas", "fastapi", "dbos", "sqlalchemy", "alembic")
JOB = "--model llama-3.1-8b --cluster dgx-h100:8 --seq-len 4096 --global-batch 64"
PROBE = """
import contextlib, io, sys
{statement}
print(*sorted(set({heavy}) & set(sys.modules)), file=sys.__stdout__)
"""
COMMAND = """
from planner.cli import main
sys.argv = {arguments}
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main()
except SystemExit as ending:
    assert not ending.code, ending.code
"""


def heavy_modules_after(statement: str) -> list[str]:
    """Names of heavy libraries loaded once the statement has run in a fresh interpreter."""
    code = PROBE.format(statement=statement, heavy=HEAVY)
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


@pytest.mark.parametrize("module", ["cost_models", "planner", "planner.cli", "planner.make_plan", "api"])
def test_import_loads_nothing_heavy(module: str) -> None:
    assert heavy_modules_after(f"import {module}") == []


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "catalog models --json",
        "inspect --model llama-3.1-8b --json",
        f"evaluate {JOB} --strategy tp=2 --json",
        f"check {JOB} --strategy tp=2 --json",
    ],
    ids=lambda command: command.split()[0],
)
def test_command_loads_nothing_heavy(command: str) -> None:
    assert heavy_modules_after(COMMAND.format(arguments=["planner", *command.split()])) == []


def test_the_probe_sees_heavy_libraries() -> None:
    assert heavy_modules_after("import pandas") == ["pandas"]
