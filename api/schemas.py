"""Bodies of requests and answers that are not already the planner's own types."""

from typing import Annotated, Any

from pydantic import Field, StrictStr

from cost_models.specs.base import Frozen
from planner.request import Name

StrategyText = Annotated[StrictStr, Field(min_length=1, max_length=10_000)]
StrategyInput = StrategyText | Annotated[dict[str, object], Field(max_length=64)]
PlanId = Annotated[StrictStr, Field(pattern=r"^plan_[0-9a-f]{32}$")]


class PlanPatch(Frozen):
    """What of a plan can be changed; a key that is absent stays, a null name is no name."""

    name: Name | None = None
    tags: Annotated[tuple[Name, ...], Field(max_length=32)] = ()


class FaultBody(Frozen):
    """One thing that is wrong."""

    pointer: str
    code: str
    detail: str
    allowed: list[str] | None = None


class ProblemBody(Frozen):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[FaultBody]


class ItemsBody(Frozen):
    """A list of answers in the order of the questions, or of catalog entries."""

    items: list[dict[str, Any]]
