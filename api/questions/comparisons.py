"""Comparisons: two plans or strategies side by side."""

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from api.questions.sources import Asked, PlanSource, asked, strategy_of
from api.schemas import StrategyInput
from cost_models.errors import BadInput
from cost_models.specs.base import Frozen


class BareStrategy(Frozen):
    """A strategy alone, priced for the other side's question."""

    strategy: StrategyInput


class ComparisonRequest(Frozen):
    """Two sides, each a plan, or a strategy alone that is priced for the question of the other."""

    first: PlanSource | BareStrategy
    second: PlanSource | BareStrategy

    @model_validator(mode="after")
    def _one_question(self) -> "ComparisonRequest":
        if isinstance(self.first, BareStrategy) and isinstance(self.second, BareStrategy):
            raise ValueError(
                "two strategies without a question; give one side model, cluster and job, or a plan"
            )
        return self

    @property
    def plan_ids(self) -> tuple[str | None, str | None]:
        """The plans of this server that the sides name."""
        first, second = (getattr(each, "plan_id", None) for each in (self.first, self.second))
        return first, second


def compare(request: ComparisonRequest, stored: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The object of `planner compare --json`; `stored` has the plans by id. Raises BadInput."""
    from planner.compare import compare as compared
    from planner.compare import side

    sides = [_asked(each, stored) for each in (request.first, request.second)]
    known = next((each for each in sides if each is not None), None)
    if known is None:
        raise BadInput("two strategies without a question; give one side a plan", pointer="/first")
    first, second = (
        found or Asked(known.situation, strategy_of(each.strategy or ""))
        for each, found in zip((request.first, request.second), sides, strict=True)
    )
    return compared(side(first.situation, first.strategy), side(second.situation, second.strategy)).to_json()


def _asked(each: PlanSource | BareStrategy, stored: Mapping[str, Mapping[str, Any]]) -> Asked | None:
    if isinstance(each, BareStrategy):
        return None
    return asked(each, stored.get(each.plan_id or ""))
