"""What the service answers, as closed schemas; the objects are those of the command line's `--json`.

The models describe answers, they do not make them: that every answer holds them is tested.
"""

from typing import Any, Literal

from cost_models.specs.base import Frozen

Seconds = float | None
"""JSON numbers that are not finite are null."""
Knobs = dict[str, int | bool | str | None]
"""A strategy by knob."""
Value = int | float | bool | str | None


class StageMemoryBody(Frozen):
    """Memory of one pipeline rank at its peak instant, in bytes."""

    group: str | None = None
    capacity_bytes: float | None = None
    stage: int
    layers: list[str]
    allocated_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    by_cause: dict[str, float]
    by_phase: dict[str, float]
    by_phase_cause: dict[str, dict[str, float]] = {}


class MemoryBody(Frozen):
    """Memory of the worst rank, and of every pipeline rank, in bytes."""

    capacity_bytes: float
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    device_used_bytes: float
    host_bytes: float
    margin_bytes: float
    worst_stage: int
    peak_phase: str
    stages: list[StageMemoryBody]


class CountedModelBody(Frozen):
    """Parameters of the model of a prediction, and who read it."""

    parameters: int
    active_parameters: int
    reader: str


class AssumedBody(Frozen):
    """What a model's config left open."""

    key: str
    value: Any
    changes_parameters: bool


class PredictionBody(Frozen):
    """`planner evaluate --json`: seconds, bytes and rates of one strategy."""

    fits: bool
    verdict: Literal["fits", "at_risk", "does_not_fit"]
    oom_probability: float
    step_s: float
    step_s_low: float
    step_s_high: float
    tokens_per_s_per_device: float | None
    samples_per_s_per_device: float
    model_flops_per_s_per_device: float
    mfu: float
    breakdown_s: dict[str, float]
    recompute_s: float
    critical_stage: int
    memory: MemoryBody
    strategy: Knobs
    model: CountedModelBody
    engine: str
    options: dict[str, Value]
    provenance: dict[str, str]
    assumed: list[AssumedBody]
    warnings: list[str]


class MadeWithBody(Frozen):
    """What an answer depends on beside the question."""

    planner_version: str
    profiles_sha256: str
    engine_versions: dict[str, str]


class ConfigurationBody(Frozen):
    """What a user can change, by name and number."""

    model: dict[str, str | int]
    cluster: dict[str, str | int]
    job: dict[str, Any]
    strategy: Knobs


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
    errors: list[dict[str, Any]]


class EvaluatedBody(Frozen):
    """An item with its evaluation."""

    evaluation: EvaluationBody


class RefusedBody(Frozen):
    """An item that cannot be evaluated."""

    problem: ItemProblemBody


class EvaluationsBody(Frozen):
    """Answers in the order of the strategies."""

    items: list[EvaluatedBody | RefusedBody]


class RegressionBody(Frozen):
    """One number that became worse than the baseline allows."""

    metric: str
    baseline: float | str
    now: float | str
    cause: str
    detail: str


class CheckBody(EvaluationBody):
    """`planner check --json`; `passed` is the answer."""

    margin_bytes: float
    passed: bool
    failures: list[str]
    regressions: list[RegressionBody]
    remedies: list[dict[str, Any]]


class RankBody(Frozen):
    """What one pipeline rank does in a step."""

    rank: int
    operations: int
    busy_s: float
    bubble_s: float
    bubble_fraction: float
    reduction_exposed_s: float
    tail_s: float
    in_flight_peak: int
    in_flight_by_chunk: list[int]


class OperationsBody(Frozen):
    """Columns of operations in order of their start."""

    rank: list[int]
    phase: list[str]
    chunk: list[int]
    stage: list[int]
    micro_batch: list[int]
    start_s: list[float]
    end_s: list[float]
    joined: list[bool]


class RankEndBody(Frozen):
    """What ends a rank's step."""

    reduction_s: float
    gather_s: float
    optimizer_s: float


class TimelineBody(Frozen):
    """The first and the last operations of a step; `left_out` are missing in `gap_s`."""

    operations: OperationsBody
    shown: int
    left_out: int
    gap_s: list[float] | None
    ranks: list[RankEndBody]
    barrier_s: float
    tail_end_s: float


class SimulationBody(Frozen):
    """`planner simulate --json` with a timeline."""

    makespan_s: float
    step_s: float
    pipeline_s: float
    fixed_s: float
    straggler_s: float
    send_s: float
    schedule: str
    micro_batches: int
    operations: int
    bubble_s: list[float]
    bubble_fraction: list[float]
    in_flight_peak: list[int]
    ranks: list[RankBody]
    strategy: Knobs
    timeline: TimelineBody


class FileBody(Frozen):
    """One file of an export; the path is relative."""

    path: str
    content: str


class ExportBody(Frozen):
    """`planner export --json`, its files as a list."""

    framework: str
    version: str
    files: list[FileBody]
    script: str
    losses: list[str]


class ComparisonBody(Frozen):
    """`planner compare --json`."""

    first: dict[str, Any]
    second: dict[str, Any]
    question: dict[str, list[Value]]
    difference: dict[str, Any]
    probability_first_faster: float
    sentence: str


class ExplanationBody(Frozen):
    """`planner explain --json` of a plan."""

    plan: PredictionBody
    facts: dict[str, Any]
    summary: str
    faster: Knobs | None
    stages: list[dict[str, Any]]
    axes: list[dict[str, Any]]
    runners_up: list[dict[str, Any]]
    sensitivity: list[dict[str, Any]]


class ContrastBody(Frozen):
    """`planner explain --against --json`."""

    plan: PredictionBody
    against: dict[str, Any]


class UnsolvedBody(Frozen):
    """Why a plan holds no strategy."""

    status: str | None
    reason: str | None
    relaxations: list[dict[str, Any]] | None
    certificate: dict[str, Any] | None


class InspectionBody(Frozen):
    """`planner inspect --json`."""

    name: str
    family: str
    reader: str
    parameters: int
    trainable_parameters: int
    active_parameters: int
    embedding_parameters: int
    head_parameters: int
    mtp_parameters: int
    tied_embeddings: bool
    kinds: list[dict[str, Value]]
    layers: list[dict[str, Value]]
    forward_flops_per_token: float
    attention_flops_per_token: float
    seq_len: int | None
    assumed: list[AssumedBody]


class HealthBody(Frozen):
    """Whether the server answers, or takes requests."""

    status: Literal["ok", "ready"]


class ProfilesBody(Frozen):
    """Which data predictions stand on."""

    profiles_sha256: str
    planner_version: str
    devices: list[str]
    clusters: list[str]
    models: list[str]


class AccuracyBody(Frozen):
    """`planner validate --json` of the published runs."""

    rows: list[dict[str, Any]]
    by_source: dict[str, Any]
    summary: dict[str, Any]
    assumed: dict[str, Any]
    core: dict[str, Any]
    ranking: dict[str, Any]
    memory: dict[str, Any]
    profiles_sha256: str
    planner_version: str
