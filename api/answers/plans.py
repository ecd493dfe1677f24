"""Plans and their results, `planner plan --json`."""

from typing import Literal

from api.answers.parts import StrategyBody, Value, ViolationBody
from api.answers.predictions import PredictionBody
from api.store.moves import State
from cost_models.specs.base import Frozen
from planner.answers import Relaxation
from planner.request import PlanRequest

Axis = list[Value] | str | Value
"""Values of an axis, or in words what follows from others."""


class PointBody(Frozen):
    """One question of a proof: what was changed or pinned in it, how it ended, its value and bound."""

    dp: int | None = None
    mbs: int | None = None
    usable_bytes: float | None = None
    devices: int | None = None
    global_batch: int | None = None
    seq_len: int | None = None
    reserve_bytes: float | None = None
    outcome: Literal["fits", "too_slow", "does_not_fit", "not_better", "open"]
    value: float | None
    bound: float | None


class ProofBody(Frozen):
    """The certificate of an objective other than step time, in its own unit."""

    objective: str
    unit: str
    sense: str
    value: float | None
    bound: float | None
    gap: float | None
    space: dict[str, Axis]
    assumption: str
    points: list[PointBody]


class CertificateBody(Frozen):
    """How close the best plan is to the optimum of the declared space, and where every mesh went."""

    objective: str
    lower_bound_s: float | None
    gap: float | None
    meshes_total: int
    meshes_illegal: dict[str, int]
    meshes_out_of_memory: int
    meshes_bounded: int
    meshes_solved: int
    meshes_open: int
    space: dict[str, Axis]
    wall_s: float
    proof: ProofBody | None = None


class GoodputBody(Frozen):
    """What failures and checkpoints take of a run."""

    share: float
    mtbf_s: float | None
    checkpoint_bytes: float
    checkpoint_s: float
    interval_s: float | None
    restart_s: float
    failures_per_day: float


class RunCostBody(Frozen):
    """Days, cost and energy of the run that the steps belong to; null where it never ends or no price is known."""

    unit: str
    tokens: float | None
    steps: int
    days: float | None
    days_without_failures: float
    tokens_per_day: float
    device_hours: float | None
    cost_usd: float | None
    cost_usd_per_million_tokens: float | None
    price_per_device_hour_usd: float | None
    energy_kwh: float | None
    energy_kwh_while_busy: float
    power_w: float
    goodput: GoodputBody
    checkpoint_every_steps: int | None
    deadline_s: float | None
    meets_deadline: bool | None


class ChangesBody(Frozen):
    """What the best plan's request has other than the one that was asked."""

    devices: int | None = None
    global_batch: int | None = None
    seq_len: int | None = None
    reserve_bytes: float | None = None
    precision: str | None = None
    optimizer: str | None = None
    options: dict[str, bool | int | float | str] | None = None


class FrontPointBody(Frozen):
    """A plan that no other beats in time, memory and devices at once."""

    plan: str | None
    devices: int
    usable_bytes: float
    step_s: float
    lower_bound_s: float | None
    device_used_bytes: float
    mfu: float
    strategy: str
    evaluation: PredictionBody


class FrontBody(Frozen):
    """Plans none of which is beaten; `complete` where the time did."""

    devices: list[int]
    memory_step_down: float
    complete: bool
    points: list[FrontPointBody]


class ChoiceBody(Frozen):
    """One of the plans that a choice is about."""

    step_s: float
    strategy: StrategyBody
    complications: int
    optimum_faster: float | None = None


class ConfidenceBody(Frozen):
    """How sure it is that the best plan is the best, and a simpler one inside the noise."""

    chosen: Literal["optimum", "simpler"]
    first_faster: float | None
    second: StrategyBody | None
    optimum: ChoiceBody
    simpler: ChoiceBody | None
    sentence: str


class ResultBody(Frozen):
    """`planner plan --json`."""

    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    best: PredictionBody | None
    alternatives: list[PredictionBody]
    certificate: CertificateBody
    relaxations: list[Relaxation]
    reason: str
    changes: ChangesBody | None = None
    run: RunCostBody | None = None
    front: FrontBody | None = None
    confidence: ConfidenceBody | None = None


class PlanProblemBody(Frozen):
    """Why a plan failed: a code, the sentence, and for a rule that was broken the nearest legal values."""

    code: str
    detail: str
    pointer: str
    allowed: list[str]
    violations: list[ViolationBody] = []


class PlanMadeWithBody(Frozen):
    """What made a plan; empty until it has succeeded."""

    planner_version: str | None = None
    profiles_sha256: str | None = None
    engine_versions: dict[str, str] | None = None
    seed: int | None = None
    created_at: str | None = None


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
    state: State
    name: str | None
    tags: tuple[str, ...]
    request: PlanRequest
    result: ResultBody | None
    problem: PlanProblemBody | None
    progress: ProgressBody
    attempt: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    made_with: PlanMadeWithBody
    links: dict[str, str]


class PlansBody(Frozen):
    """A page of plans; `next_cursor` is null on the last."""

    items: list[PlanBody]
    next_cursor: str | None
