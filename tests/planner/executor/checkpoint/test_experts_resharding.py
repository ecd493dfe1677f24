"""Experts of a checkpoint go to other ranks than had them: each is kept for itself, wherever it was."""

from pathlib import Path

import pytest

from tests.planner.executor.checkpoint.resharding import Layout, difference
from tests.planner.executor.orders import DEEPSEEK, MIXTRAL

LIMIT = 1e-5
BIAS = {"moe_bias_rate": 0.01}
"""A correction of the router's scores, which is no parameter, moves by the load of every step."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            Layout("dp=2,ep=2,zero=1", 2, config=MIXTRAL), Layout("", 1, config=MIXTRAL), id="ep 2 to 1"
        ),
        pytest.param(
            Layout("dp=2,ep=2,zero=1", 2, config=MIXTRAL),
            Layout("dp=4,ep=4,zero=3", 4, config=MIXTRAL),
            marks=pytest.mark.matrix,
            id="ep 2 to 4",
        ),
        pytest.param(
            Layout("dp=4,ep=2,zero=3", 4, config=MIXTRAL),
            Layout("pp=2,dp=2,ep=2,zero=1,stages=1+1", 4, config=MIXTRAL),
            marks=pytest.mark.matrix,
            id="experts' data parallel to pipeline",
        ),
        pytest.param(
            Layout("tp=2,ep=2,mbs=4", 2, config=DEEPSEEK, options=BIAS),
            Layout("dp=2,etp=2,zero=2,mbs=4", 2, config=DEEPSEEK, options=BIAS),
            marks=pytest.mark.matrix,
            id="corrected scores",
        ),
        pytest.param(
            Layout("cp=2,dp=2,zero=1", 4),
            Layout("tp=2", 2),
            marks=pytest.mark.matrix,
            id="context parallel to tensor parallel",
        ),
    ],
)
def test_losses_go_on(first: Layout, second: Layout, tmp_path: Path) -> None:
    assert difference(first, second, tmp_path) <= LIMIT
