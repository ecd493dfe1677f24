"""`planner explain --server`: the same answer, found by a service."""

from collections.abc import Mapping
from typing import Any

from planner.cli.plan_input import AskedPlan
from planner.cli.question import Question, strategy_of
from planner.cli.remote import asking, plan_body
from planner.explain import Contrast, Explanation


def explain_remotely(
    asked: AskedPlan, given: Mapping[str, Any], max_seconds: float
) -> tuple[Explanation, dict[str, Any]]:
    """An explanation of a plan, read back and as it was sent."""
    from planner.answered.explanations import explanation

    found = _ask(asked, given, {"max_seconds": max_seconds})
    return explanation(asked.situation, found), found


def contrast_remotely(
    asked: AskedPlan, given: Mapping[str, Any], max_seconds: float
) -> tuple[Contrast, dict[str, Any]]:
    """A plan against another strategy, read back and as it was sent."""
    from planner.answered.explanations import contrast

    other = strategy_of(Question(strategy=given["against"])).model_dump(mode="json", exclude_none=True)
    found = _ask(asked, given, {"max_seconds": max_seconds, "against": other})
    return contrast(asked.situation, found), found


def _ask(asked: AskedPlan, given: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    with asking(given) as client:
        return client.explain({**plan_body(asked), **more})
