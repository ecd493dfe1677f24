"""Errors of the planner beside those of the cost models.

PlannerError
├── VerificationFailed       a plan that contradicts its own re-check: a bug of ours, never the user's
└── RunFailed                a run whose rank raised, was killed, or waited too long
"""

import signal

from cost_models.errors import PlannerError


class VerificationFailed(PlannerError):
    """The independent re-check disagrees with the search."""


class RunFailed(PlannerError):
    """A run that ended before its last step, with the rank that failed first.

    `exit_code` is the rank's; a negative one is the number of the signal that ended it.
    """

    def __init__(self, rank: int, exit_code: int, message: str) -> None:
        self.rank = rank
        self.exit_code = exit_code
        self.message = message
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        if self.exit_code >= 0:
            return f"rank {self.rank} failed with exit code {self.exit_code}: {self.message}"
        name = signal.Signals(-self.exit_code).name
        hint = "; it may have run out of memory" if self.exit_code == -signal.SIGKILL else ""
        return f"rank {self.rank} was ended by {name}{hint}"

    def to_json(self) -> dict[str, object]:
        """The `failure` object of `planner run --json`."""
        return {"rank": self.rank, "exit_code": self.exit_code, "message": str(self)}
