"""Explanations: why this plan, and why not another strategy."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt

from api.questions.sources import PlanSource, asked, strategy_of, unsolved
from api.schemas import StrategyInput

MAX_SECONDS = 120.0
UNSOLVED_KEYS = ("status", "reason", "relaxations", "certificate")


class ExplanationRequest(PlanSource):
    """A plan to explain; with `against`, why not that strategy. Searches stop after `max_seconds`."""

    against: StrategyInput | None = None
    max_seconds: Annotated[StrictFloat | StrictInt, Field(ge=0, le=MAX_SECONDS)] = 30.0


def explain(request: ExplanationRequest, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object of `planner explain --json`: a plan's, a contrast's, or why there is no plan; raises BadInput."""
    result = unsolved(request, stored)
    if result is not None:
        return {key: result.get(key) for key in UNSOLVED_KEYS}

    from planner import explain as library
    from planner.evaluation import evaluate

    found = asked(request, stored)
    seconds = float(request.max_seconds)
    if request.against is None:
        return library.explain(found.situation, found.search, found.strategy, found.others, seconds).to_json()
    other = strategy_of(request.against)
    plan = evaluate(found.situation, found.strategy)
    contrast = library.against(found.situation, found.search, plan, other, seconds)
    return {"plan": plan.to_json(), "against": contrast.to_json()}
