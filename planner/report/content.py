"""What a report holds: an answer, the views of its layouts, and how the search went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.answers import PlanResult, Prediction, finite
from planner.attribution import stamp
from planner.plan_file import now_text
from planner.report.views import question_of, view_of
from planner.situation import Situation, changed

MAX_CANDIDATES: Final = 12
"""Layouts that are listed; more than that nobody compares."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An answer to report: of a search (`result`), or of one strategy alone (`prediction`)."""

    situation: Situation
    prediction: Prediction | None
    result: PlanResult | None = None
    events: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def of_plan(
        cls, situation: Situation, result: PlanResult, events: Sequence[Mapping[str, Any]] = ()
    ) -> "Reported":
        """A plan; its situation is the one that the best layout answers."""
        if result.changes:
            situation = changed(situation, result.changes)
        return cls(situation, result.best, result, events)

    @property
    def candidates(self) -> tuple[Prediction, ...]:
        """The layout and its runners-up, at most MAX_CANDIDATES."""
        if self.prediction is None:
            return ()
        others = self.result.alternatives if self.result else ()
        return (self.prediction, *others)[:MAX_CANDIDATES]

    def data(self, operations: int, other_operations: int, most_views: int) -> dict[str, Any]:
        """Plain values for the views: `operations` of the first timeline are kept, fewer of the others'."""
        views = [
            view_of(self.situation, found.strategy, operations if index == 0 else other_operations)
            for index, found in enumerate(self.candidates[:most_views])
        ]
        found: dict[str, Any] = {
            "title": "The plan" if self.result else "The strategy",
            "question": question_of(self.situation),
            "result": None if self.result is None else _without_layouts(self.result),
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "events": list(self.events),
            "made_with": stamp(self.situation) | {"created_at": now_text()},
        }
        cleaned = finite(found)
        made: dict[str, Any] = cleaned if isinstance(cleaned, dict) else found
        return made | {"views": views}


def _without_layouts(result: PlanResult) -> dict[str, object]:
    """The answer without its layouts, which stand in `candidates`."""
    return {key: value for key, value in result.to_json().items() if key not in {"best", "alternatives"}}
