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


class SearchRequest(Frozen):
    """How to search: what is fixed, what is forbidden, how long, how close."""

    objective: Literal["step_time", "cost", "devices", "batch"] = "step_time"
    pins: Annotated[dict[str, StrictBool | StrictInt | StrictStr], Field(max_length=64)] = {}
    bans: Annotated[tuple[StrictStr, ...], Field(max_length=64)] = ()
    top_k: Annotated[StrictInt, Field(ge=0, le=100)] = 5
    max_seconds: Annotated[StrictFloat | StrictInt, Field(gt=0, le=86_400)] = 60.0
    gap: Annotated[StrictFloat | StrictInt, Field(ge=0, lt=1)] = 1e-3
    seed: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)] = 0
    allow_at_risk: StrictBool = False


class PlanRequest(Frozen):
    """A question to the planner."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    search: SearchRequest = SearchRequest()
    name: Name | None = None
    tags: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
