"""Bodies of answers about runs."""

from typing import Any, Literal

from api.runs.requests import LaunchRequest
from api.runs.states import RunState
from cost_models.specs.base import Frozen


class StepProgress(Frozen):
    """The last step that a run told of."""

    step: int | None
    loss: float | None
    step_s: float | None
    tokens_per_s: float | None
    attempt: int | None


class RunBody(Frozen):
    """A run; `ratio` is predicted over measured. `artifacts` can be fetched now."""

    id: str
    plan_id: str
    state: RunState
    failure_code: str | None
    failure_detail: str | None
    launcher: Literal["local", "slurm", "kubernetes"]
    request: LaunchRequest
    attempt: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    heartbeat_at: str | None
    host: str | None
    progress: StepProgress | None
    predicted: dict[str, Any] | None
    measured: dict[str, Any] | None
    ratio: dict[str, Any] | None
    artifacts: list[str]
    links: dict[str, str]


class RunsBody(Frozen):
    """A page of runs, newest first."""

    items: list[RunBody]
    next_cursor: str | None


class LogBody(Frozen):
    """Lines of a log; ask again with `after` = `next` for those that follow."""

    rank: int | None
    lines: list[str]
    next: int


class MetricsBody(Frozen):
    """Steps of a run, each once; ask again with `after` = `next` for those that follow."""

    items: list[dict[str, Any]]
    next: int
