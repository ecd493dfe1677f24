"""How much work a search may do, and what became of one of its questions."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of one search; `until` in seconds of the monotonic clock; `stop` ends it early once it says yes."""

    until: float
    seed: int
    workers: int
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Closed:
    """A lower bound on the steps of one subproblem, and whether it settles the subproblem."""

    bound_s: float
    is_proved: bool
    rounds: int = 0
