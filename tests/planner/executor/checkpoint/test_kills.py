"""Whenever workers are killed, during checkpoints too, a run ends with the losses of one that nobody disturbed."""

from pathlib import Path

import pytest

from tests.planner.executor.checkpoint.kills import disturbed, undisturbed


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("strategy", "seed"), [("dp=2,zero=1", 0), ("tp=2", 1), ("pp=2,stages=3+1", 2), ("dp=2,zero=3", 3)]
)
def test_ten_kills_change_nothing(strategy: str, seed: int, tmp_path: Path) -> None:
    whole = undisturbed(strategy, 2, tmp_path / "whole")
    found = disturbed(strategy, 2, tmp_path / "killed", kills=10, seed=seed)
    assert found.kills > 0
    assert found.attempts > 1
    assert found.steps == whole.steps
    assert found.positions == whole.positions
    assert found.losses == whole.losses
