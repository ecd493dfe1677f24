"""The strategy: how a job is spread over devices. `StrategyRequest` is what a user writes, `Strategy` is complete."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field, StrictBool, StrictInt, ValidationError, field_validator, model_validator

from cost_models.errors import IllegalStrategy, Violation
from cost_models.operators.context import FORMS, PATTERN, is_kind
from cost_models.schedule.names import ScheduleName
from cost_models.specs.base import Frozen
from cost_models.specs.pools import groups_text
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy_words import as_pairs
from cost_models.suggest import did_you_mean

MAX_DEGREE = 10_000_000
MAX_STAGES: Final = 10_000
"""Far more than any model has layers; rules that list stages stay quick below it."""
DEFAULT_ORDER = ("tp", "cp", "ep", "dp", "pp")
ORDER_AXES = frozenset(DEFAULT_ORDER)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")

Degree = Annotated[StrictInt, Field(ge=1, le=MAX_DEGREE)]
Blocks = Annotated[StrictInt, Field(ge=0, le=MAX_DEGREE)]
"""Layers of a virtual stage; none where it holds the embedding or the loss alone."""


class StrategyRequest(Frozen):
    """A strategy as written: every key may be absent, the engine fills it (`Engine.complete`)."""

    tp: Degree | None = None
    cp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    dp: Degree | None = None
    dp_shard: Degree | None = None
    dp_replicate: Degree | None = None
    zero: Annotated[StrictInt, Field(ge=0, le=3)] | None = None
    mbs: Degree | None = None
    sp: StrictBool | None = None
    schedule: ScheduleName | None = None
    recompute: str | None = None
    stages: tuple[Blocks, ...] | None = None
    cp_kind: Annotated[str, Field(pattern=PATTERN)] | None = None
    order: tuple[str, ...] | None = None
    offload: str | None = None
    act_offload: str | None = None
    groups: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAX_STAGES)] | None = None

    @field_validator("cp_kind", mode="before")
    @classmethod
    def _known_kind(cls, value: object) -> object:
        if isinstance(value, str) and not is_kind(value):
            raise ValueError(f"use {', '.join(FORMS)}")
        return value

    @field_validator("groups", mode="before")
    @classmethod
    def _groups_text(cls, value: object) -> object:
        return _ranks_of_groups(value) if isinstance(value, str) else value

    @field_validator("stages", mode="before")
    @classmethod
    def _stages_text(cls, value: object) -> object:
        if isinstance(value, str):
            parts = [_whole(part) for part in value.split("+")]
            if None in parts:
                raise ValueError("write layers joined by +, as in 20+20+21+19")
            return tuple(parts)
        return value

    @field_validator("order", mode="before")
    @classmethod
    def _order_text(cls, value: object) -> object:
        return tuple(value.split("-")) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _few_stages(self) -> "StrategyRequest":
        stages = (self.pp or 1) * (self.vpp or 1)
        if stages > MAX_STAGES:
            raise ValueError(f"pp x vpp is {stages:,} stages; use at most {MAX_STAGES:,}")
        return self


@dataclass(frozen=True, slots=True)
class Strategy:
    """A complete strategy. World = tp x cp x pp x dp; ep and etp re-divide the same ranks.

    `stages` holds blocks per virtual stage in global order; `order` names the axes from the inner link tier outwards
    (ep lies inside cp x dp of the dense ranks and is placed where it stands in the order).
    """

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
    schedule: ScheduleName
    recompute: Recompute
    stages: tuple[int, ...]
    cp_kind: str = "ring"
    order: tuple[str, ...] = DEFAULT_ORDER
    offload: str = "none"
    act_offload: str = "none"
    stage_groups: tuple[str, ...] = ()  # device groups of each pipeline rank (pools.py); empty: all are alike

    @property
    def world_size(self) -> int:
        """Number of devices."""
        return self.tp * self.cp * self.pp * self.dp

    def num_micro_batches(self, global_batch: int) -> int:
        """Micro-batches per data-parallel rank and step."""
        return global_batch // (self.mbs * self.dp)

    def full_layers(self) -> tuple[int, ...]:
        """Fully recomputed blocks of each virtual stage, in global order."""
        return self.recompute.full_layers(self.stages)

    def to_json(self) -> dict[str, object]:
        """The contract's strategy object."""
        keys = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "zero", "mbs", "sp")
        values: dict[str, object] = {key: getattr(self, key) for key in keys}
        return (
            values
            | {
                "schedule": self.schedule.value,
                "recompute": self.recompute.text(),
                "stages": "+".join(str(n) for n in self.stages),
                "cp_kind": self.cp_kind,
                "order": "-".join(self.order),
                "offload": self.offload,
            }
            | ({"act_offload": self.act_offload} if self.act_offload != "none" else {})
            | ({"groups": groups_text(self.stage_groups)} if self.stage_groups else {})
        )

    def text(self) -> str:
        """`tp=8,pp=4,…`: what `--strategy` takes, complete."""
        values = self.to_json()
        return ",".join(f"{key}={_text(value)}" for key, value in values.items())

    def mesh_text(self) -> str:
        """The short name for people: degrees above 1, micro-batch, schedule, recompute, what is offloaded."""
        degrees = {k: getattr(self, k) for k in ("tp", "cp", "pp", "vpp", "ep", "etp", "dp")}
        shown = " ".join(f"{k.upper()}{n}" for k, n in degrees.items() if n > 1) or "1 device"
        shown += f" on {groups_text(self.stage_groups)}" if self.stage_groups else ""
        moved = f" offload {self.offload}" if self.offload != "none" else ""
        moved += f" act_offload {self.act_offload}" if self.act_offload != "none" else ""
        return (
            f"{shown} ZeRO-{self.zero} mbs {self.mbs} {self.schedule.value} recompute {self.recompute.text()}"
            f"{moved}"
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_strategy(text: str) -> StrategyRequest:
    """A strategy from `key=value,…`, or in the words of `mesh_text`; raises IllegalStrategy naming the key."""
    values: dict[str, object] = {}
    for item in filter(None, (part.strip() for part in as_pairs(text).split(","))):
        key, equals, value = item.partition("=")
        key = key.strip()
        if not equals or not value.strip():
            raise _bad("syntax", f"{item!r:.80} is not key=value; write for example tp=8,pp=4 (or TP8 PP4)")
        if key in values:
            raise _bad("duplicate", f"{key} is given twice ({values[key]} and {value}); give it once")
        values[key] = _typed(key, value.strip())
    return strategy_from_mapping(values)


def strategy_from_mapping(values: Mapping[str, object]) -> StrategyRequest:
    """A strategy from a JSON object; raises IllegalStrategy naming the key and what is allowed."""
    known = tuple(StrategyRequest.model_fields)
    for key in values:
        if key not in known:
            raise _bad("unknown_key", f"unknown strategy key {key!r:.80}; {did_you_mean(key, known)}", known)
    try:
        return StrategyRequest.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        sentence = first["msg"].removeprefix("Value error, ")
        if not first["loc"]:
            raise _bad("value", sentence) from None
        key = str(first["loc"][0])
        raise _bad("value", f"{key}={_text(values.get(key)):.80} is not valid: {sentence}") from None


def _typed(key: str, value: str) -> object:
    """JSON-typed value of a `key=value` item."""
    if key in ("recompute", "stages", "cp_kind", "order", "offload", "act_offload", "schedule", "groups"):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    number = _whole(value)
    return value if number is None else number


def _ranks_of_groups(text: str) -> tuple[str, ...]:
    """Groups of each pipeline rank from `a100*4+h100*4`; a number left out is one rank."""
    ranks: list[str] = []
    for run in text.split("+"):
        name, star, count = run.strip().partition("*")
        number = _whole(count) if star else 1
        if not name.strip() or number is None or not 1 <= number <= MAX_STAGES:
            raise ValueError("write device groups and their pipeline ranks joined by +, as in a100*4+h100*4")
        ranks += [name.strip()] * number
    return tuple(ranks)


def _whole(text: str) -> int | None:
    """The whole number that ASCII digits spell; None for anything else (1_0, other scripts, absurd lengths)."""
    return int(text) if _WHOLE.fullmatch(text.strip()) else None


def _bad(rule: str, detail: str, allowed: tuple[str, ...] = ()) -> IllegalStrategy:
    nearest = (f"one of {', '.join(allowed)}",) if allowed else ()
    return IllegalStrategy((Violation(f"strategy_{rule}", detail.rstrip("; "), nearest),))


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, rising."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))
