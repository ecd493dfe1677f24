"""Asks the step-time search changed questions within one time limit, and remembers what was asked."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from cost_models.errors import BadInput
from planner.answers import PlanResult, Progress
from planner.objectives.oracle import Report, StepOracle
from planner.objectives.run import RunTerms
from planner.request import SearchRequest
from planner.situation import Situation, changed

LOOSE_GAP = 0.9
"""Gap of a search that only asks whether anything fits: it stops at about the first plan."""

LEAST_SECONDS = 1e-3
ROUNDING = 1e-9

Changes = Mapping[str, int | float]


@dataclass
class Asking:
    """One question with its variations: fewer devices, other batches, lengths or reserves."""

    situation: Situation
    search: SearchRequest
    oracle: StepOracle
    report: Report
    started_s: float = field(default_factory=time.monotonic)
    asked: int = 0

    @property
    def wall_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started_s

    @property
    def is_late(self) -> bool:
        """Whether the time limit has passed."""
        return self.wall_s > self.search.max_seconds

    def at(self, changes: Changes) -> Situation | None:
        """The changed situation; None where the engine refuses such a job or cluster."""
        try:
            return changed(self.situation, changes) if changes else self.situation
        except BadInput:
            if not changes:
                raise
            return None

    def terms(self, situation: Situation) -> RunTerms:
        """Prices, power and goodput of a situation."""
        return RunTerms.of(situation, self.search.run)

    def least_step_s(self, changes: Changes, pins: Mapping[str, int] | None = None) -> float:
        """A step that no plan of the changed question beats; infinite where none fits or is legal."""
        situation = self.at(changes)
        self._tell(changes)
        return math.inf if situation is None else self.oracle.least_step_s(situation, self._search(pins))

    def fastest(
        self, changes: Changes, pins: Mapping[str, int] | None = None, within_s: float = math.inf
    ) -> PlanResult | None:
        """The plan with the least step of the changed question, below `within_s`; None where the job is refused."""
        situation = self.at(changes)
        self._tell(changes)
        if situation is None:
            return None
        # A bound of (1 - gap) x the limit is enough for the search, so it is given that much more.
        above = within_s / (1.0 - self.search.gap) * (1.0 + ROUNDING)
        search = self._search(pins)
        return self.oracle.fastest(situation, search, self.report, explain=False, within_s=above)

    def as_asked(self, changes: Changes | None = None) -> PlanResult:
        """The fastest plan of the question as it was asked (or changed), and what would help where there is none."""
        situation = self.at(changes or {}) or self.situation
        return self.oracle.fastest(situation, self._search(None), self.report, explain=True)

    def fits(self, changes: Changes, pins: Mapping[str, int] | None = None) -> PlanResult | None:
        """Some plan that fits, proved absent where the status is infeasible; not tuned, no alternatives."""
        situation = self.at(changes)
        self._tell(changes)
        if situation is None:
            return None
        search = self._search(pins).model_copy(update={"gap": LOOSE_GAP, "top_k": 0})
        return self.oracle.fastest(situation, search, self.report, explain=False)

    def _search(self, pins: Mapping[str, int] | None) -> SearchRequest:
        """The search for the least step with what is left of the time."""
        left = max(self.search.max_seconds - self.wall_s, LEAST_SECONDS)
        merged = {**self.search.pins, **(pins or {})}
        return self.search.model_copy(update={"objective": "step_time", "max_seconds": left, "pins": merged})

    def _tell(self, changes: Changes) -> None:
        self.asked += 1
        self.report(Progress(self.search.objective, detail={"asked": self.asked, **changes}))
