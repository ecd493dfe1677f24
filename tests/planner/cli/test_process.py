"""The command line as a process: exit codes, silent pipes, interruption, bugs, and what it loads."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "from planner.cli import main; main()"
JOB = "--model llama-3.2-1b --cluster dgx-h100:8 --seq-len 2048 --global-batch 32"
HEAVY = ("torch", "ortools", "pandas", "fastapi", "dbos", "transformers", "rich")


def start(arguments: str, program: str = PROGRAM, **environment: str) -> "subprocess.Popen[str]":
    """Start a command line."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments.split()],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_json_is_one_object_and_standard_error_is_empty() -> None:
    code, out, err = finish(start(f"check {JOB} --strategy tp=2 --json"))
    assert (code, err) == (0, "")
    assert json.loads(out)["fits"] is True


def test_bad_input_leaves_standard_output_empty() -> None:
    code, out, err = finish(start(f"check {JOB} --strategy tp=3 --json"))
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_a_closed_pipe_is_quiet() -> None:
    program = PROGRAM.replace("main()", "import time; time.sleep(0.2); main()")
    with start(f"check {JOB} --strategy tp=2 --json", program) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("sent", "code", "said"), [("SIGINT", 130, "interrupted"), ("SIGTERM", -15, "terminated")]
)
def test_an_end_from_outside_is_said_without_a_traceback(sent: str, code: int, said: str) -> None:
    program = """
import sys, time, planner.evaluation
def wait(*arguments):
    print("ready", file=sys.stderr, flush=True)
    time.sleep(60)
planner.evaluation.evaluate = wait
from planner.cli import main
main()
"""
    process = start(f"evaluate {JOB} --strategy tp=2", program)
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(signal.Signals[sent])
    ended, out, err = finish(process)
    assert (ended, out, err.lstrip()) == (code, "", f"planner: {said}\n")


@pytest.mark.parametrize("debug", ["", "1"])
def test_a_bug_exits_3_with_one_line_and_a_traceback_only_on_request(debug: str) -> None:
    program = """
import planner.evaluation
def fail(*arguments):
    raise KeyError("gone")
planner.evaluation.evaluate = fail
from planner.cli import main
main()
"""
    code, out, err = finish(start(f"evaluate {JOB} --strategy tp=2 --json", program, PLANNER_DEBUG=debug))
    assert (code, out) == (3, "")
    assert "KeyError" in err
    assert ("Traceback" in err) is bool(debug)
    assert debug or err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        f"check {JOB} --strategy tp=2 --json",
        f"evaluate {JOB} --strategy tp=2 --json",
        "inspect --model gpt2 --json",
        "catalog devices --json",
        "catalog engines --json",
        "catalog models gpt2 --json",
        "--version",
    ],
)
def test_light_commands_load_nothing_heavy(arguments: str) -> None:
    program = f"""
import sys
from planner.cli import main
try:
    main()
finally:
    print(*sorted(set({HEAVY!r}) & set(sys.modules)), file=sys.stderr)
"""
    code, _, err = finish(start(arguments, program))
    assert (code, err.strip()) == (0, "")


def test_importing_the_command_line_loads_click_only() -> None:
    program = "import sys, planner.cli.group; print(*{'numpy', 'pydantic', 'yaml'} & set(sys.modules))"
    code, out, _ = finish(start("", program))
    assert (code, out.strip()) == (0, "")


@pytest.mark.bench
def test_check_starts_in_under_six_tenths_of_a_second() -> None:
    finish(start(f"check {JOB} --strategy tp=2 --json"))
    began = time.monotonic()
    code, _, _ = finish(start(f"check {JOB} --strategy tp=2 --json"))
    assert code == 0
    assert time.monotonic() - began < 0.6
