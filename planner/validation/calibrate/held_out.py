"""Which of a user's runs a fit does not see."""

from hashlib import blake2b
from typing import Final

FEWEST: Final = 3
"""Runs that a fit needs."""
HELD_EVERY: Final = 5
SLACK: Final = 0.002
"""By how much the error of runs that were not fitted to may grow: the rounding of few runs."""


def is_held(run_id: str) -> bool:
    """One run in five by a hash of its name, the same every time."""
    return blake2b(run_id.encode(), digest_size=4).digest()[0] % HELD_EVERY == 0
