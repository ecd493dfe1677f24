"""Checks: one strategy, or a plan, against limits and a baseline."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from api.questions.sources import PlanSource, asked

Share = Annotated[StrictFloat | StrictInt, Field(ge=0, le=100)]
SUBJECT = "planner check"


class CheckRequest(PlanSource):
    """A plan or a strategy against limits; `baseline` is a plan file, a prediction or a `planner baseline`."""

    max_memory_fraction: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] | None = None
    fail_at_risk: StrictBool = False
    max_slowdown: Share = 0.05
    max_memory_growth: Share | None = None
    baseline: dict[str, object] | None = None
    subject: Annotated[str, Field(min_length=1, max_length=200)] = SUBJECT


def check(request: CheckRequest, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object of `planner check --json`; `passed` is the answer. Raises BadInput."""
    from planner.checking import Limits
    from planner.checking import check as checked
    from planner.gate import NamedCheck, baseline_of

    found = asked(request, stored)
    limits = Limits(
        request.max_memory_fraction, request.fail_at_risk, request.max_slowdown, request.max_memory_growth
    )
    before, notes = baseline_of(request.baseline, request.subject)
    report = checked(found.situation, found.strategy, limits, before)
    named = NamedCheck(request.subject, report, notes=notes)
    return report.to_json() | {"warnings": list(named.warnings)}
