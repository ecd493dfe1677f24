"""The multi-process fixture of the executor's tests."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.planner.executor import ranks


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Many small processes on a few cores: threads would wait for each other."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[Any]]:
    """`run_ranks(function, world, *args, timeout_s=60)`: one result per rank (see ranks.py)."""
    return ranks.run_ranks
