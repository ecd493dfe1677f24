"""Comparisons and explanations."""

from typing import Literal

from api.answers.parts import Pair, StrategyBody, Value, Verdict, ViolationBody
from api.answers.plans import CertificateBody
from api.answers.predictions import BreakdownBody, PredictionBody
from cost_models.specs.base import Frozen
from planner.answers import Relaxation


class FactsBody(Frozen):
    """What an expert looks at first in a layout."""

    micro_batches: int
    bubble: float
    in_flight_first_stage: float
    layers_per_stage: str
    tokens_per_product: int
    gradient_shards: int
    vocabulary_rows: int
    links: dict[str, str]


class StageDifferenceBody(Frozen):
    """Memory of one pipeline rank in both; null where one has no such rank."""

    stage: int
    first_bytes: float | None
    second_bytes: float | None
    by_cause: dict[str, float]


class MemoryDifferenceBody(Frozen):
    """Bytes that the second takes more on its fullest stage, and both stage by stage."""

    worst_bytes: float
    worst_by_cause: dict[str, float]
    stages: list[StageDifferenceBody]


class DifferenceBody(Frozen):
    """Second minus first, in knobs, seconds and bytes."""

    knobs: dict[str, Pair]
    step_s: float
    ratio: float
    breakdown_s: BreakdownBody
    recompute_s: float
    memory: MemoryDifferenceBody


class SideBody(PredictionBody):
    """One side of a comparison: its prediction and facts."""

    facts: FactsBody


class ComparisonBody(Frozen):
    """`planner compare --json`."""

    first: SideBody
    second: SideBody
    question: dict[str, Pair]
    difference: DifferenceBody
    probability_first_faster: float
    sentence: str


class StageRoomBody(Frozen):
    """Memory of one stage: used, free, and what one more block takes."""

    binds: bool
    used_bytes: float
    room_bytes: float
    block_bytes: float


class StageBindingBody(Frozen):
    """What binds one stage: its time by resource, its memory."""

    stage: int
    layers: list[str]
    busy_s: float
    slack_s: float
    binding: str
    shares: dict[str, float]
    memory: StageRoomBody


class AlternativeBody(Frozen):
    """One axis at another value; nulls where nothing is legal or fits."""

    change: str
    value: Value
    how: str
    step_s: float | None
    verdict: Verdict | None
    strategy: StrategyBody | None
    difference: DifferenceBody | None
    sentence: str


class AxisBody(Frozen):
    """One axis of the plan with its value, and what other values would do."""

    axis: str
    value: Value
    alternatives: list[AlternativeBody]


class RunnerUpBody(Frozen):
    """Another plan, what differs, and how sure it is that the first beats it."""

    step_s: float
    verdict: Verdict
    strategy: StrategyBody
    differs: str
    difference: DifferenceBody
    probability_plan_faster: float


class SensitivityBody(Frozen):
    """What one improvement of the hardware would save."""

    key: str
    change: str
    how: Literal["re-planned", "re-priced", "neither"]
    step_s: float | None
    gain: float | None
    best_known_step_s: float
    repriced_step_s: float | None
    replanned_step_s: float | None
    strategy: StrategyBody | None
    why: str


class ExplanationBody(Frozen):
    """`planner explain --json` of a plan."""

    plan: PredictionBody
    facts: FactsBody
    summary: str
    faster: StrategyBody | None
    stages: list[StageBindingBody]
    axes: list[AxisBody]
    runners_up: list[RunnerUpBody]
    sensitivity: list[SensitivityBody]


class AgainstBody(Frozen):
    """Why not another strategy; nulls where it is illegal or nothing is known of it."""

    asked: str
    verdict: Literal["same", "slower", "faster", "does_not_fit", "illegal", "unknown"]
    completed: bool
    strategy: StrategyBody | None
    prediction: PredictionBody | None
    difference: DifferenceBody | None
    violations: list[ViolationBody]
    lower_bound_s: float | None
    gap: float | None
    probability_plan_faster: float | None
    why: str
    short: str
    sentence: str


class ContrastBody(Frozen):
    """`planner explain --against --json`."""

    plan: PredictionBody
    against: AgainstBody


class UnsolvedBody(Frozen):
    """Why a plan holds no strategy."""

    status: str | None
    reason: str | None
    relaxations: list[Relaxation] | None
    certificate: CertificateBody | None
