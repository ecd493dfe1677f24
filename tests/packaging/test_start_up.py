"""How long a command takes from a cold start, as a person or a CI job feels it."""

import subprocess
import sys
import time

import pytest

CHECK = "check --model llama-3.1-8b --cluster dgx-h100:8 --seq-len 4096 --global-batch 64 --strategy tp=2"
LIMIT_S = 0.6


@pytest.mark.bench
def test_check_answers_before_it_is_noticed() -> None:
    program = "import sys; from planner.cli import main; sys.argv[0] = 'planner'; main()"
    command = [sys.executable, "-c", program, *CHECK.split(), "--json"]
    taken_s = []
    for _ in range(5):
        started_s = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken_s.append(time.perf_counter() - started_s)
    # The best of five: what the program needs, not what else the machine was doing.
    assert min(taken_s) <= LIMIT_S, taken_s
