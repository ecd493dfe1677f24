"""What was found out about a layout, as a report carries it: an explanation, a contrast, or a comparison."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planner.answers import Prediction
from planner.situation import Situation

if TYPE_CHECKING:
    from planner.compare import Comparison
    from planner.explain import Contrast, Explanation


@dataclass(frozen=True, slots=True)
class Reason:
    """`kind` is explanation, contrast or comparison, `found` its JSON object, `others` the layouts it speaks of beside
    the first."""

    kind: str
    found: Mapping[str, Any]
    others: tuple[tuple[Situation, Prediction], ...] = ()

    @classmethod
    def of_explanation(cls, situation: Situation, made: "Explanation") -> "Reason":
        """Why this plan: its runners-up stand beside it."""
        others = tuple((situation, other.prediction) for other in made.runners_up)
        return cls("explanation", made.to_json(), others)

    @classmethod
    def of_contrast(cls, situation: Situation, made: "Contrast") -> "Reason":
        """Why not another strategy, which stands beside it where it could be priced."""
        return cls("contrast", made.to_json(), () if made.other is None else ((situation, made.other),))

    @classmethod
    def of_comparison(cls, made: "Comparison") -> "Reason":
        """Two plans; the second may answer another question."""
        return cls("comparison", made.to_json(), ((made.second.situation, made.second.prediction),))
