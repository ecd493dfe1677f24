"""Tables of measured beside predicted: rank correlation, summaries, documents, and the command on tiny models."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cost_models.profiles import read_profile
from planner.executor.measured.__main__ import put_into
from planner.executor.measured.cases import cpu_cases, gpu_cases
from planner.executor.measured.compare import Row, markdown, rank_correlation


def row(name: str, predicted: float, measured: float, memory: float) -> Row:
    return Row(name, 1, predicted, measured, measured, memory, 1.0, memory, 1.0)


def test_rank_correlation() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 20.0, 30.0]) == 1.0
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == -1.0
    # Ranks 0 1 2 3 and 1 0 2 3: 1 - 6 (1 + 1) / (4 * 15) = 0.8
    assert rank_correlation([1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0]) == pytest.approx(0.8)
    assert rank_correlation([1.0, 2.0], [1.0, 2.0]) is None


def test_the_table_says_how_many_are_within_ten_percent() -> None:
    rows = [row("a", 1.0, 1.0, 1.05), row("b", 2.0, 2.0, 1.2), row("c", 3.0, 3.0, 0.91)]
    text = "\n".join(markdown([*rows, Row("d", 1, failure="out of memory")]))
    assert "within 10 % in 2 of 3 plans" in text
    assert "out of memory" in text


def test_a_gpus_table_shows_what_the_allocator_reserved() -> None:
    found = list(markdown([Row("a", 1, 1.0, 1.0, 1.0, 2.0**20, 2.0**20, 3 * 2.0**20, 4 * 2.0**20)]))
    assert found[0].endswith("| reserved predicted, MiB | measured |")
    assert found[2].endswith("| 3 | 4 |")
    assert found[0].count("|") == found[1].count("|") == found[2].count("|")


def test_a_table_replaces_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- measured:cpu -->\nold\n<!-- /measured:cpu -->\nafter\n")
    put_into(page, "cpu", "new\n")
    assert page.read_text() == "before\n<!-- measured:cpu -->\nnew\n<!-- /measured:cpu -->\nafter\n"


def test_every_case_is_legal() -> None:
    assert len(cpu_cases(2)) >= 12
    assert len(gpu_cases(2, "dgx-h200")) >= 8


@pytest.mark.slow
def test_the_gpu_command_is_proved_on_a_cpu(tmp_path: Path) -> None:
    command = [
        "-m",
        "planner.executor.measured",
        "gpu",
        "--tiny",
        "--steps",
        "2",
        "--profile-minutes",
        "0.05",
        "--only",
        "mbs=2,recompute=full",
    ]
    answer = subprocess.run(
        [sys.executable, *command, "-o", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert answer.returncode == 0, answer.stderr
    rows = json.loads((tmp_path / "results.json").read_text())
    assert len(rows) == 3  # dense, a mixture of experts, latent attention
    assert all(found["measured_bytes"] > 0 and not found["failure"] for found in rows)
    # The profile comes back as a folder beside the table, and the predictions are from it.
    assert all(found["unprofiled_step_s"] > 0 for found in rows)
    assert "without it" in (tmp_path / "table.md").read_text()
    folder = Path(json.loads((tmp_path / "profile.json").read_text())["folder"])
    profile = read_profile(folder)
    assert profile.points
    assert not profile.manifest.complete
