"""Bodies of requests and answers that are not already the planner's own types."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr

from cost_models.specs.base import Frozen
from planner.request import Name

StrategyText = Annotated[StrictStr, Field(min_length=1, max_length=10_000)]
StrategyInput = StrategyText | Annotated[dict[str, object], Field(max_length=64)]
PlanId = Annotated[StrictStr, Field(pattern=r"^plan_[0-9a-f]{32}$")]


class ProgressBody(Frozen):
    """How far a search is."""

    lower_bound_s: float | None
    best_step_s: float | None
    gap: float | None
    meshes_done: int
    meshes_total: int


class PlanBody(Frozen):
    """A plan and its state; `result` is the object of `planner plan --json`."""

    id: str
    schema_version: int
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    name: str | None
    tags: tuple[str, ...]
    request: dict[str, Any]
    result: dict[str, Any] | None
    problem: dict[str, Any] | None
    progress: ProgressBody
    attempt: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    made_with: dict[str, Any]
    links: dict[str, str]


class PlanPatch(Frozen):
    """What of a plan can be changed; a key that is absent stays, a null name is no name."""

    name: Name | None = None
    tags: Annotated[tuple[Name, ...], Field(max_length=32)] = ()


class PlansBody(Frozen):
    """A page of plans; `next_cursor` is null on the last."""

    items: list[PlanBody]
    next_cursor: str | None


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
