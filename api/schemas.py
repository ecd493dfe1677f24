"""Bodies of requests and answers that are not already the planner's own types."""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest
from planner.request import ClusterInput, ModelInput

MAX_STRATEGIES = 1000

StrategyText = Annotated[StrictStr, Field(min_length=1, max_length=10_000)]
StrategyInput = StrategyText | Annotated[dict[str, object], Field(max_length=64)]
PlanId = Annotated[StrictStr, Field(pattern=r"^plan_[0-9a-f]{32}$")]
Share = Annotated[StrictFloat | StrictInt, Field(ge=0, le=100)]


class EvaluationRequest(Frozen):
    """Strategies to predict for one model, cluster and job."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    strategies: Annotated[list[StrategyInput], Field(min_length=1, max_length=MAX_STRATEGIES)]


class CheckRequest(Frozen):
    """One strategy (or a plan of this server) against limits; `baseline` is a plan file or a prediction."""

    model: ModelInput | None = None
    cluster: ClusterInput | None = None
    job: JobRequest | None = None
    strategy: StrategyInput | None = None
    plan_id: PlanId | None = None
    max_memory_fraction: Annotated[StrictFloat | StrictInt, Field(ge=0, le=1)] | None = None
    fail_at_risk: StrictBool = False
    max_slowdown: Share = 0.05
    baseline: dict[str, object] | None = None

    @model_validator(mode="after")
    def _one_question(self) -> "CheckRequest":
        stated = [key for key in ("model", "cluster", "job", "strategy") if getattr(self, key) is not None]
        if self.plan_id is not None and stated:
            raise ValueError(
                f"plan_id and {', '.join(stated)} are given; give plan_id alone or all the others"
            )
        if self.plan_id is None and len(stated) < 4:
            raise ValueError("give model, cluster, job and strategy, or plan_id")
        return self


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
