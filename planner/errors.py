"""Errors of the planner beside those of the cost models.

PlannerError
├── VerificationFailed       a plan that contradicts its own re-check: a bug of ours, never the user's
└── RunFailed                a run whose rank raised, was killed, or waited too long
"""

import signal
from dataclasses import asdict, dataclass

from cost_models.errors import PlannerError


class VerificationFailed(PlannerError):
    """The independent re-check disagrees with the search."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a rank was at when it failed, as far as it left word; `resume_from` is the last good checkpoint."""

    kind: str = ""
    phase: str = ""
    step: int = 0
    resume_from: str = ""


class RunFailed(PlannerError):
    """A run that ended before its last step, with the rank that failed first.

    `exit_code` is the rank's; a negative one is the number of the signal that ended it.
    """

    def __init__(self, rank: int, exit_code: int, message: str, at: Circumstances | None = None) -> None:
        self.rank = rank
        self.exit_code = exit_code
        self.message = message
        self.at = at or Circumstances()
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        at = self.at
        where = f" (step {at.step:,}, {at.phase})" if at.phase else ""
        after = f"; {at.resume_from} is the last good checkpoint: go on with --resume auto"
        return self._what() + where + (after if at.resume_from else "")

    def _what(self) -> str:
        if self.at.kind == "hung":
            return f"rank {self.rank} hung: {self.message}"
        if self.exit_code >= 0:
            return f"rank {self.rank} failed with exit code {self.exit_code}: {self.message}"
        name = signal.Signals(-self.exit_code).name
        hint = "; it may have run out of memory" if self.exit_code == -signal.SIGKILL else ""
        more = f": {self.message}" if self.at.kind and self.message else ""
        return f"rank {self.rank} was ended by {name}{hint}{more}"

    def to_json(self) -> dict[str, object]:
        """The `failure` object of `planner run --json`."""
        return {"rank": self.rank, "exit_code": self.exit_code, "message": str(self), **asdict(self.at)}
