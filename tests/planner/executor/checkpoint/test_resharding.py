"""A checkpoint of any layout goes on under any other: the next five losses are those of the run that wrote it."""

from pathlib import Path

import pytest

from tests.planner.executor.checkpoint.resharding import Layout, difference, random_pair

LIMIT = 1e-5
EIGHT_BIT = {"optimizer": "adam8bit"}
MUON = {"optimizer": "muon"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            Layout("tp=2,pp=2,dp=2,stages=3+2", 8),
            Layout("tp=1,pp=4,dp=1,stages=2+1+1+1", 4),
            marks=pytest.mark.slow,
            id="3d to pp",
        ),
        pytest.param(Layout("dp=2,zero=1", 2), Layout("dp=2,zero=3", 2, "fsdp2"), id="zero 1 to 3"),
        pytest.param(
            Layout("dp=4,zero=3", 4, "fsdp2"),
            Layout("dp=2,zero=1", 2),
            marks=pytest.mark.matrix,
            id="zero 3 to 1",
        ),
        pytest.param(
            Layout("dp=2,zero=1", 2, job=EIGHT_BIT),
            Layout("dp=2,zero=1", 2, job=EIGHT_BIT),
            marks=pytest.mark.matrix,
            id="8-bit states",
        ),
        pytest.param(
            Layout("dp=2,zero=1", 2, job=MUON),
            Layout("tp=2,pp=2,stages=2+3", 4, job=MUON),
            marks=pytest.mark.matrix,
            id="muon",
        ),
        pytest.param(
            Layout("pp=2,stages=3+2", 2, job={"optimizer": "sgd"}),
            Layout("tp=2", 2, job={"optimizer": "sgd"}),
            marks=pytest.mark.matrix,
            id="sgd",
        ),
        pytest.param(
            Layout("", 1, job={"optimizer": "adafactor"}),
            Layout("pp=2,stages=3+2", 2, job={"optimizer": "adafactor"}),
            marks=pytest.mark.matrix,
            id="adafactor",
        ),
    ],
)
def test_losses_go_on(first: Layout, second: Layout, tmp_path: Path) -> None:
    assert difference(first, second, tmp_path) <= LIMIT


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(20))
def test_losses_go_on_between_random_layouts(seed: int, tmp_path: Path) -> None:
    assert difference(*random_pair(seed), tmp_path) <= LIMIT
