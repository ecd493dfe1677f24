"""What the objectives ask of the search for the least step; the search itself is handed in."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from planner.answers import PlanResult, Progress
from planner.request import SearchRequest
from planner.situation import Situation

Report = Callable[[Progress], None]


class FastestPlan(Protocol):
    """The search for the least step."""

    def __call__(
        self,
        situation: Situation,
        search: SearchRequest,
        report: Report,
        *,
        explain: bool = True,
        within_s: float = math.inf,
    ) -> PlanResult:
        """The plan with the least step below `within_s`, certified: none is a proof, and the bound says how far off.

        `explain` also looks for what would help where none fits.
        """
        ...


@dataclass(frozen=True, slots=True)
class StepOracle:
    """The two questions: the fastest plan (seconds of work), and a step that no plan beats (a fraction of that)."""

    fastest: FastestPlan
    least_step_s: Callable[[Situation, SearchRequest], float]
