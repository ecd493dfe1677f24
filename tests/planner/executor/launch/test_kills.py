"""Whatever of a run is killed, and whenever, no process of it is left."""

from pathlib import Path

import pytest

from tests.planner.executor.launch.kills import kill_at_random


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(1, 10))]
)
def test_nothing_is_left_after_a_kill(seed: int, tmp_path: Path) -> None:
    kill_at_random(seed, tmp_path)
