"""What a report holds: an answer, the views of its layouts, and how the search went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from planner.answers import PlanResult, Prediction, finite
from planner.attribution import stamp
from planner.plan_file import now_text
from planner.report.reason import Reason
from planner.report.views import question_of, view_of
from planner.situation import Situation, changed

MAX_CANDIDATES: Final = 12
"""Layouts that are listed; more than that nobody compares."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An answer to report: of a search (`result`), or of one strategy alone (`prediction`), with what was found out
    about it (`why`); `names` are the layouts' where they are no plan and runners-up."""

    situation: Situation
    prediction: Prediction | None
    result: PlanResult | None = None
    events: Sequence[Mapping[str, Any]] = ()
    why: Reason | None = None
    names: tuple[str, ...] = ()

    @classmethod
    def of_plan(
        cls, situation: Situation, result: PlanResult, events: Sequence[Mapping[str, Any]] = ()
    ) -> "Reported":
        """A plan; its situation is the one that the best layout answers."""
        if result.changes:
            situation = changed(situation, result.changes)
        return cls(situation, result.best, result, events)

    @property
    def layouts(self) -> tuple[tuple[Situation, Prediction], ...]:
        """The layout, then its runners-up or those that it is held against, at most MAX_CANDIDATES."""
        if self.prediction is None:
            return ()
        alternatives = self.result.alternatives if self.result else ()
        others = self.why.others if self.why else [(self.situation, other) for other in alternatives]
        return ((self.situation, self.prediction), *others)[:MAX_CANDIDATES]

    @property
    def candidates(self) -> tuple[Prediction, ...]:
        """The predictions of `layouts`."""
        return tuple(prediction for _, prediction in self.layouts)

    def data(self, operations: int, other_operations: int, most_views: int) -> dict[str, Any]:
        """Plain values for the views: `operations` of the first timeline are kept, fewer of the others'."""
        views = [
            view_of(situation, found.strategy, operations if index == 0 else other_operations)
            for index, (situation, found) in enumerate(self.layouts[:most_views])
        ]
        found: dict[str, Any] = {
            "title": self.title,
            "names": list(self.names),
            "question": question_of(self.situation),
            "result": None if self.result is None else _without_layouts(self.result),
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "events": list(self.events),
            **({self.why.kind: self.why.found} if self.why else {}),
            "made_with": stamp(self.situation) | {"created_at": now_text()},
        }
        cleaned = finite(found)
        made: dict[str, Any] = cleaned if isinstance(cleaned, dict) else found
        return made | {"views": views}

    @property
    def title(self) -> str:
        """What stands above the first layout."""
        if self.names:
            return self.names[0]
        return "The plan" if self.result or self.why else "The strategy"


def _without_layouts(result: PlanResult) -> dict[str, object]:
    """The answer without its layouts, which stand in `candidates`."""
    return {key: value for key, value in result.to_json().items() if key not in {"best", "alternatives"}}
