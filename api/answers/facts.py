"""Exports, inspections, and what is known."""

from typing import Any, Literal

from api.answers.parts import AssumedBody, Value
from cost_models.specs.base import Frozen


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
