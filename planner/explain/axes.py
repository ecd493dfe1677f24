"""What each axis of a plan costs and saves: the best plan with that axis halved, doubled, off or of another kind.

Each alternative is searched with the axis pinned and everything else free (`searched`); where the budget has run out it
is the best neighbour instead: the axis changed, and one other degree or the data-parallel size taking it up
(`neighbour`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy, StrategyRequest
from cost_models.units import format_bytes, format_seconds
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.explain.differences import Difference, difference, signed_bytes
from planner.explain.pinned import LEAST_SECONDS, Budget, best_under, with_pins
from planner.explain.restated import restated
from planner.request import SearchRequest
from planner.restrictions import RECOMPUTE_KINDS, recompute_kind
from planner.situation import Situation

TAKES_UP: Final = ("dp", "cp", "tp", "pp")
"""Degrees that a neighbour changes the other way, so that the devices stay the same."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One axis at another value, everything else as good as it goes; `prediction` is None where nothing is legal or
    fits, and `why` says which."""

    axis: str
    change: str
    value: object
    how: str
    prediction: Prediction | None
    difference: Difference | None
    why: str = ""

    def to_json(self) -> dict[str, object]:
        """One entry of an axis' `alternatives`."""
        found = self.prediction
        return {
            "change": self.change,
            "value": self.value,
            "how": self.how,
            "step_s": found.step_s if found else None,
            "verdict": found.verdict if found else None,
            "strategy": found.strategy.to_json() if found else None,
            "difference": self.difference.to_json() if self.difference else None,
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """`tp 2 -> 4: 61.7 s, 2.7 % slower (+2.31 s tp communication); 1.20 GiB less on the fullest stage`."""
        if self.prediction is None or self.difference is None:
            return f"{self.axis} {self.value}: {self.why}"
        slower = self.difference.step_s / self.difference.first_s
        where = f" ({self.difference.where()})" if self.difference.where() else ""
        pace = f"{abs(slower):.1%} {'slower' if slower >= 0 else 'faster'}"
        memory = self.difference.worst_bytes
        by = f" ({self.difference.memory_where()})" if self.difference.memory_where() else ""
        return (
            f"{self.axis} {self.value}: {format_seconds(self.prediction.step_s)}, {pace}{where}; "
            f"fullest stage {signed_bytes(memory)}{by}"
        )


@dataclass(frozen=True, slots=True)
class AxisCost:
    """One axis of the plan with its value and what other values would do."""

    axis: str
    value: object
    alternatives: tuple[Alternative, ...]

    def to_json(self) -> dict[str, object]:
        """One entry of `axes`."""
        return {
            "axis": self.axis,
            "value": self.value,
            "alternatives": [alternative.to_json() for alternative in self.alternatives],
        }


def axis_costs(
    situation: Situation, search: SearchRequest, plan: Prediction, budget: Budget
) -> tuple[AxisCost, ...]:
    """What every axis costs and saves, in the order of the axes."""
    wanted = list(_wanted(situation, plan.strategy))
    found: dict[str, list[Alternative]] = {}
    for index, (axis, change, value) in enumerate(wanted):
        one = _searched(situation, search, plan, (axis, change, value), budget.share_s(len(wanted) - index))
        found.setdefault(axis, []).append(one)
    return tuple(AxisCost(axis, value_of(plan.strategy, axis), tuple(each)) for axis, each in found.items())


def value_of(strategy: Strategy, axis: str) -> object:
    """The value of an axis as pins name it; recompute by its kind."""
    if axis == "recompute":
        return recompute_kind(strategy.recompute)
    value = getattr(strategy, axis)
    return value.value if isinstance(value, ScheduleName) else value


def _wanted(situation: Situation, strategy: Strategy) -> Iterator[tuple[str, str, object]]:
    """Axis, what is done to it, and the new value."""
    experts = ("ep", "etp") if situation.model.is_moe else ()
    for axis in ("tp", "cp", "pp", "vpp", *experts, "dp", "mbs"):
        now = int(getattr(strategy, axis))
        most = situation.job.global_batch if axis == "mbs" else situation.cluster.num_devices
        halved = now // 2 if now % 2 == 0 else now
        changes = {1: "off", halved: "halved", 2 * now: "doubled"} | {1: "off"}
        yield from ((axis, name, value) for value, name in changes.items() if value != now and value <= most)
    space = situation.engine.space(situation.model, situation.job)
    able = {"none": True, "selective": any(space.scopes), "full": space.full_recompute}
    recompute = tuple(kind for kind in RECOMPUTE_KINDS if able[kind])
    kinds = {"zero": space.zero, "schedule": space.schedules, "recompute": recompute}
    for axis, values in kinds.items():
        yield from ((axis, "other", value) for value in values if value != value_of(strategy, axis))


def _bans(axis: str, value: object) -> tuple[str, ...]:
    """Bans that leave only one kind of recompute, of which a pin would fix the scopes too."""
    return tuple(f"recompute={kind}" for kind in RECOMPUTE_KINDS if axis == "recompute" and kind != value)


def _searched(
    situation: Situation,
    search: SearchRequest,
    plan: Prediction,
    wanted: tuple[str, str, object],
    max_seconds: float,
) -> Alternative:
    axis, change, value = wanted
    if max_seconds < LEAST_SECONDS / 10:
        return _neighbour(situation, plan, wanted)
    pins: dict[str, object] = {} if axis == "recompute" else {axis: value}
    result = best_under(situation, with_pins(search, pins, _bans(axis, value)), max_seconds)
    if result is not None and result.best is not None:
        return Alternative(axis, change, value, "searched", result.best, difference(plan, result.best))
    if result is None or result.status == "unknown":
        return _neighbour(situation, plan, wanted)
    memory, legal = result.certificate.meshes_out_of_memory, result.certificate.meshes_total
    legal -= sum(result.certificate.meshes_illegal.values())
    why = "no legal layout" if legal == 0 else f"none of {memory:,} legal layouts fits in memory"
    if legal == 0 and result.certificate.meshes_illegal:
        rules = sorted(result.certificate.meshes_illegal.items(), key=lambda item: -item[1])[:3]
        why += f" (rules {', '.join(rule for rule, _ in rules)})"
    return Alternative(axis, change, value, "searched", None, None, why)


def _neighbour(situation: Situation, plan: Prediction, wanted: tuple[str, str, object]) -> Alternative:
    """The fastest neighbour that fits: the axis changed, one other degree taking it up."""
    axis, change, value = wanted
    blocks = situation.model.num_blocks
    tried = evaluate_many(situation, list(neighbours(plan.strategy, axis, value, blocks)))
    legal = [p for p in tried if isinstance(p, Prediction)]
    fitting = [p for p in legal if p.verdict == "fits"]
    if not fitting:
        return Alternative(axis, change, value, "neighbour", None, None, _unfit(legal))
    best = min(fitting, key=lambda p: p.step_s)
    return Alternative(axis, change, value, "neighbour", best, difference(plan, best))


def _unfit(legal: list[Prediction]) -> str:
    """Why none of these neighbours is taken."""
    if not legal:
        return "no legal neighbour"
    least = min(legal, key=lambda p: p.oom_probability)
    if least.fits:
        return f"no neighbour surely fits; the leanest runs out of memory with {least.oom_probability:.0%}"
    return f"no neighbour fits; the leanest is short by {format_bytes(max(-least.memory.margin_bytes, 0.0))}"


def neighbours(strategy: Strategy, axis: str, value: object, blocks: int) -> Iterator[StrategyRequest]:
    """Strategies with one axis changed and, for degrees, another one changed the other way; legal or not."""
    if axis in TAKES_UP:
        yield from _other_degrees(strategy, axis, int(str(value)), blocks)
    elif axis == "vpp":
        if strategy.pp * int(str(value)) <= blocks:
            yield restated(strategy, {"vpp": value, "schedule": None, "stages": None})
    else:
        yield restated(strategy, {axis: value})


def _other_degrees(strategy: Strategy, axis: str, value: int, blocks: int) -> Iterator[StrategyRequest]:
    for other in TAKES_UP:
        degrees = {name: int(getattr(strategy, name)) for name in TAKES_UP} | {axis: value}
        rest = math.prod(degree for name, degree in degrees.items() if name != other)
        degrees[other] = strategy.world_size // rest
        whole = strategy.world_size % rest == 0 and degrees["dp"] % strategy.dp_replicate == 0
        if other == axis or not whole or degrees["pp"] * strategy.vpp > blocks:
            continue
        follows = {
            "dp_shard": None,
            "stages": None,
            "groups": None,
            "recompute": _one_count(strategy.recompute),
        }
        yield restated(strategy, {**degrees, **follows, "sp": strategy.sp and degrees["tp"] > 1})


def _one_count(recompute: Recompute) -> str:
    """The same recompute with one number of layers for all stages."""
    full = recompute.full
    return Recompute(recompute.scopes, max(full) if isinstance(full, tuple) else full).text()
