"""Errors of the planner beside those of the cost models.

BadInput
└── UnsupportedObjective     an objective of the contract that this version does not search for
PlannerError
└── VerificationFailed       a plan that contradicts its own re-check: a bug of ours, never the user's
"""

from cost_models.errors import BadInput, PlannerError


class UnsupportedObjective(BadInput):
    """An objective that is known by name only."""

    def __init__(self, objective: str) -> None:
        detail = f"objective {objective} is not searched for in this version; use step_time"
        super().__init__(detail, pointer="/search/objective", allowed=("step_time",))


class VerificationFailed(PlannerError):
    """The independent re-check disagrees with the search."""
