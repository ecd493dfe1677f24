"""The multi-process fixture of the executor's tests."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.planner.executor import ranks


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[Any]]:
    """`run_ranks(function, world, *args, timeout_s=60)`: one result per rank (see ranks.py)."""
    return ranks.run_ranks
