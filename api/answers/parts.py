"""Parts that several answers share."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cost_models.specs.base import Frozen

Value = int | float | bool | str | None
Verdict = Literal["fits", "at_risk", "does_not_fit"]
Pair = Annotated[list[Value], Field(min_length=2, max_length=2)]
"""The first's and the second's."""


class StrategyBody(Frozen):
    """A complete strategy by knob; `act_offload` where activations are moved, `groups` where devices differ."""

    tp: int
    cp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    dp: int
    dp_shard: int
    dp_replicate: int
    zero: int
    mbs: int
    sp: bool
    schedule: str
    recompute: str
    stages: str
    cp_kind: str
    order: str
    offload: str
    act_offload: str | None = None
    groups: str | None = None


class AssumedBody(Frozen):
    """What a model's config left open."""

    key: str
    value: Any
    changes_parameters: bool


class MadeWithBody(Frozen):
    """What an answer depends on beside the question."""

    planner_version: str
    profiles_sha256: str
    engine_versions: dict[str, str]


class ViolationBody(Frozen):
    """A broken rule with the nearest legal values and its source."""

    rule: str
    detail: str
    nearest: list[str]
    source: str
