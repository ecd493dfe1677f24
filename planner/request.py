"""What a user asks: a model, a cluster, a job and how to search. Tagged objects; no string is opened as a path here."""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest

Name = Annotated[StrictStr, Field(min_length=1, max_length=200)]


class HuggingFaceModel(Frozen):
    """A Hugging Face `config.json`, inline."""

    kind: Literal["huggingface"] = "huggingface"
    config: dict[str, object]


class LayersModel(Frozen):
    """A layers file, inline."""

    kind: Literal["layers"] = "layers"
    spec: dict[str, object]


class CatalogModel(Frozen):
    """A model of `planner catalog models`."""

    kind: Literal["catalog"] = "catalog"
    name: Name


class PresetCluster(Frozen):
    """A cluster of `planner catalog clusters` with a number of devices (one node when absent)."""

    kind: Literal["preset"] = "preset"
    name: Name
    devices: StrictInt | None = None


class SpecCluster(Frozen):
    """A cluster spelt out."""

    kind: Literal["spec"] = "spec"
    spec: dict[str, object]


ModelInput = Annotated[HuggingFaceModel | LayersModel | CatalogModel, Field(discriminator="kind")]
ClusterInput = Annotated[PresetCluster | SpecCluster, Field(discriminator="kind")]


Positive = Annotated[StrictFloat | StrictInt, Field(gt=0, le=1e30)]
NotNegative = Annotated[StrictFloat | StrictInt, Field(ge=0, le=1e30)]
Objective = Literal[
    "step_time", "cost", "devices", "batch", "cost_per_token", "energy", "seq_len", "goodput", "memory"
]


class RunRequest(Frozen):
    """The run that the steps belong to: how much, by when, at what price, how often it fails.

    `tokens` counts samples for vision models. Absent prices stay unknown; they are never guessed. The defaults:

    - `mtbf_device_hours`: 419 unexpected interruptions in 54 days on 16,384 devices (Llama 3, arXiv:2407.21783, section
      3.3.4): 16,384 x 54 x 24 h / 419 = 50,677 hours of one device between two interruptions.
    - `restart_s`: under ten minutes to find a failure and to test the machines (MegaScale, NSDI 2024, section 6).
    - `checkpoint_bytes_per_s_per_device`: storage sustains 2 TB/s for 16,384 devices (Llama 3, section 3.3.1).
    - `pue`: 1, the devices (and their share of the node) alone.
    """

    tokens: Positive | None = None
    deadline_s: Positive | None = None
    min_tokens_per_s: Positive | None = None
    price_per_device_hour_usd: NotNegative | None = None
    pue: Annotated[StrictFloat | StrictInt, Field(ge=1, le=10)] = 1.0
    mtbf_device_hours: Positive = 50_677.0
    restart_s: NotNegative = 600.0
    checkpoint_bytes_per_s_per_device: Positive = 1.22e8
    checkpoint_s: NotNegative | None = None
    checkpoint_interval_s: Positive | None = None


class SearchRequest(Frozen):
    """How to search: what is made small or large, what is fixed, what is forbidden, how long, how close."""

    objective: Objective = "step_time"
    run: RunRequest = RunRequest()
    pareto: StrictBool = False
    pins: Annotated[dict[str, StrictBool | StrictInt | StrictStr], Field(max_length=64)] = {}
    bans: Annotated[tuple[StrictStr, ...], Field(max_length=64)] = ()
    vary: Annotated[dict[StrictStr, StrictStr], Field(max_length=8)] = {}
    """Values that an option may have beside the job's own: `grad_dtype` to `bf16,fp32` (planner/varied.py)."""
    top_k: Annotated[StrictInt, Field(ge=0, le=100)] = 5
    max_seconds: Annotated[StrictFloat | StrictInt, Field(gt=0, le=86_400)] = 60.0
    gap: Annotated[StrictFloat | StrictInt, Field(ge=0, lt=1)] = 1e-3
    seed: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)] = 0
    allow_at_risk: StrictBool = False
    prefer_simple: StrictBool = False
    """Return the simplest plan inside the noise of the best (planner/choice.py)."""
    explain: StrictBool = True
    """Where nothing fits, look for the smallest changes that would help; takes seconds."""


class PlanRequest(Frozen):
    """A question to the planner."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    search: SearchRequest = SearchRequest()
    name: Name | None = None
    tags: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
