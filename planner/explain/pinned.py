"""The best plan under a few more pins, within a budget of seconds; and why there is none."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.errors import BadInput
from planner.answers import PlanResult, Progress
from planner.make_plan import fastest_plan
from planner.request import SearchRequest
from planner.situation import Situation

COARSE_GAP = 0.01
"""Plans of an explanation are searched to 1 %: their numbers are compared, not used."""
LEAST_SECONDS = 0.5
"""A search is not begun with less time than this."""


@dataclass(frozen=True, slots=True)
class Budget:
    """When an explanation stops searching and only prices neighbours."""

    deadline: float

    @classmethod
    def of(cls, max_seconds: float) -> "Budget":
        """From now on."""
        return cls(time.monotonic() + max_seconds)

    @property
    def left_s(self) -> float:
        """Seconds left, never below 0."""
        return max(self.deadline - time.monotonic(), 0.0)

    def share_s(self, parts: int) -> float:
        """An equal share of what is left."""
        return self.left_s / max(parts, 1)

    def allows_search(self) -> bool:
        """Whether a search is still worth beginning."""
        return self.left_s >= LEAST_SECONDS


def silent(progress: Progress) -> None:
    """Drops progress."""


def with_pins(search: SearchRequest, pins: Mapping[str, object], bans: tuple[str, ...] = ()) -> SearchRequest:
    """The search with more pins and bans; pins replace older ones of the same key, and bans that concern it."""
    named = {*pins, *(ban.partition("=")[0] for ban in bans)}
    older: dict[str, object] = {key: value for key, value in search.pins.items() if key not in named}
    kept = tuple(ban for ban in search.bans if ban.partition("=")[0] not in named)
    return SearchRequest.model_validate(
        search.model_dump() | {"pins": older | dict(pins), "bans": kept + bans}
    )


def best_under(situation: Situation, search: SearchRequest, max_seconds: float) -> PlanResult | None:
    """The plan with the least step, to 1 %, in so many seconds; None where the restrictions themselves cannot be."""
    values = {
        "max_seconds": max(max_seconds, LEAST_SECONDS),
        "gap": max(float(search.gap), COARSE_GAP),
        "top_k": 0,
    }
    try:
        return fastest_plan(situation, search.model_copy(update=values), silent, explain=False)
    except BadInput:
        return None
