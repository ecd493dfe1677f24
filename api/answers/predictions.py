"""Evaluations and checks."""

from typing import Any

from api.answers.parts import AssumedBody, MadeWithBody, StrategyBody, Value, Verdict
from api.schemas import FaultBody
from cost_models.specs.base import Frozen
from planner.answers import MemoryPrediction
from planner.checking import Regression
from planner.remedies import Remedy


class CountedModelBody(Frozen):
    """Parameters of the model of a prediction, and who read it."""

    parameters: int
    active_parameters: int
    reader: str


class BreakdownBody(Frozen):
    """Seconds of a step by cause."""

    compute: float
    tp_communication: float
    cp_communication: float
    ep_communication: float
    pp_communication: float
    pp_bubble: float
    dp_communication: float
    optimizer: float
    other: float


class PredictionBody(Frozen):
    """`planner evaluate --json`: seconds, bytes and rates of one strategy."""

    fits: bool
    verdict: Verdict
    oom_probability: float
    step_s: float
    step_s_low: float
    step_s_high: float
    tokens_per_s_per_device: float | None
    samples_per_s_per_device: float
    model_flops_per_s_per_device: float
    mfu: float
    breakdown_s: BreakdownBody
    recompute_s: float
    critical_stage: int
    memory: MemoryPrediction
    strategy: StrategyBody
    model: CountedModelBody
    engine: str
    options: dict[str, Value]
    provenance: dict[str, str]
    assumed: list[AssumedBody]
    warnings: list[str]


class NamedModelBody(Frozen):
    """A model by name and size."""

    name: str
    parameters: int


class NamedClusterBody(Frozen):
    """A cluster by name and size."""

    name: str
    devices: int


class ConfigurationBody(Frozen):
    """What a user can change, by name and number; `job` is the request's, its defaults spelt out."""

    model: NamedModelBody
    cluster: NamedClusterBody
    job: dict[str, Any]
    strategy: StrategyBody


class EvaluationBody(PredictionBody):
    """A prediction with what it is of and what made it."""

    configuration: ConfigurationBody
    made_with: MadeWithBody


class ItemProblemBody(Frozen):
    """What is wrong with one strategy; pointers name it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FaultBody]


class EvaluatedBody(Frozen):
    """An item with its evaluation."""

    evaluation: EvaluationBody


class RefusedBody(Frozen):
    """An item that cannot be evaluated."""

    problem: ItemProblemBody


class EvaluationsBody(Frozen):
    """Answers in the order of the strategies."""

    items: list[EvaluatedBody | RefusedBody]


class CheckBody(EvaluationBody):
    """`planner check --json`; `passed` is the answer."""

    margin_bytes: float
    passed: bool
    failures: list[str]
    regressions: list[Regression]
    remedies: list[Remedy]
