"""Every schedule trains as one process does, and runs its operation list in order, on 2 and 4 processes."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planner.executor.pipeline.toy import Case, run_cases

RunRanks = Callable[..., list[Any]]

# Uneven stages; the fewest micro-batches that each schedule takes, and more.
ON_TWO = [
    Case("gpipe", (2, 1), 1),
    Case("gpipe", (1, 2), 4),
    Case("1f1b", (2, 1), 1),
    Case("1f1b", (1, 3), 5),
    Case("interleaved", (1, 2, 1, 1), 2),
    Case("interleaved", (1, 1, 2, 1, 1, 1), 6),
    Case("zb-h1", (1, 2), 1),
    Case("zb-h1", (2, 1), 6),
    Case("zb-v", (1, 2, 1, 1), 1),
    Case("zb-v", (2, 1, 1, 1), 6),
    Case("dualpipe-v", (1, 2, 1, 1), 4),
    Case("dualpipe-v", (1, 1, 1, 2), 7),
]
ON_FOUR = [
    Case("1f1b", (1, 2, 1, 1), 6, p=4),
    Case("interleaved", (1, 1, 1, 1, 2, 1, 1, 1), 8, p=4),
    Case("zb-h1", (1, 2, 1, 1), 2, p=4),
    Case("zb-h1", (1, 1, 2, 1), 8, p=4),
    Case("zb-v", (1, 1, 1, 1, 2, 1, 1, 1), 4, p=4),
    Case("zb-v", (1, 1, 1, 1, 1, 1, 1, 2), 9, p=4),
    Case("dualpipe-v", (2, 1, 1, 1, 1, 1, 1, 1), 8, p=4),
    Case("dualpipe-v", (1, 1, 2, 1, 1, 1, 1, 1), 11, p=4),
]
SHARDED = [
    Case("1f1b", (1, 2), 3, dp_shard=2, zero=1),
    Case("zb-h1", (2, 1), 4, dp_shard=2, zero=1),
    Case("dualpipe-v", (1, 2, 1, 1), 5, dp_shard=2),
    Case("interleaved", (1, 2, 1, 1), 4, dp_shard=2, zero=3),
    Case("zb-h1", (2, 1), 4, dp_shard=2, zero=2, again=True),
    Case("zb-v", (1, 2, 1, 1), 3, dp_shard=2, zero=3, again=True),
    Case("dualpipe-v", (1, 2, 1, 1), 5, dp_shard=2, zero=3),
]
HYBRID = [
    Case("1f1b", (1, 2), 3, dp_shard=2, dp_replicate=2, zero=3),
    Case("zb-v", (1, 2, 1, 1), 3, dp_shard=2, dp_replicate=2, zero=2),
    Case("dualpipe-v", (1, 2, 1, 1), 5, dp_shard=2, dp_replicate=2, zero=3),
]


@pytest.mark.parametrize(
    ("world", "cases"),
    [(2, ON_TWO), (4, ON_FOUR), (4, SHARDED), pytest.param(8, HYBRID, marks=pytest.mark.slow)],
    ids=["two", "four", "sharded", "hybrid"],
)
def test_equals_one_process_and_runs_its_list(run_ranks: RunRanks, world: int, cases: list[Case]) -> None:
    for found_by_rank in run_ranks(run_cases, world, cases):
        for case, found in zip(cases, found_by_rank, strict=True):
            assert found.gradient < 1e-5, case
            assert found.loss < 1e-6, case
            assert found.ran_the_list, case
