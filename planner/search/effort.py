"""How much work a search may do, and what became of one of its questions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of one search; `until` in seconds of the monotonic clock."""

    until: float
    seed: int
    workers: int


@dataclass(frozen=True, slots=True)
class Closed:
    """A lower bound on the steps of one subproblem, and whether it settles the subproblem."""

    bound_s: float
    is_proved: bool
    rounds: int = 0
