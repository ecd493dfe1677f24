"""What would make a strategy fit: changes of one knob, evaluated, the fastest first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import with_config

from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy, strategy_from_mapping
from planner.answers import CLOSED, Prediction
from planner.evaluation import evaluate_many
from planner.situation import Situation

MOST = 3


@with_config(CLOSED)
@dataclass(frozen=True, slots=True)
class Remedy:
    """One changed knob in a strategy's words, and what becomes of memory and step time.

    `slowdown` is the new step over the old one less 1; the old step is that of a run that does not fit.
    """

    change: str
    device_used_bytes: float
    step_s: float
    slowdown: float

    def to_json(self) -> dict[str, object]:
        """One entry of `remedies`."""
        return {
            "change": self.change,
            "device_used_bytes": self.device_used_bytes,
            "step_s": self.step_s,
            "slowdown": self.slowdown,
        }


def remedies(
    situation: Situation, prediction: Prediction, below_bytes: float = math.inf
) -> tuple[Remedy, ...]:
    """Changes of one knob after which the same job fits, the fastest first; empty where none does.

    `below_bytes`: only those that need less of the device.
    """
    tried = dict(_changes(situation, prediction.strategy))
    requests = [strategy_from_mapping(strategy.to_json()) for strategy in tried.values()]
    found = [
        Remedy(change, after.memory.device_used_bytes, after.step_s, after.step_s / prediction.step_s - 1.0)
        for change, after in zip(tried, evaluate_many(situation, requests), strict=True)
        if isinstance(after, Prediction)
        and after.verdict == "fits"
        and after.memory.device_used_bytes < below_bytes
    ]
    return tuple(sorted(found, key=lambda remedy: remedy.step_s)[:MOST])


def _changes(situation: Situation, plan: Strategy) -> Iterator[tuple[str, Strategy]]:
    """Knobs that free memory, legal or not: the engine decides."""
    if not plan.recompute.full:
        scopes = sorted({s.name for kind in situation.model.kinds.values() for s in kind.scopes})
        bases = [situation.engine.default_scopes, *((name,) for name in scopes), tuple(scopes)]
        for base in dict.fromkeys(tuple(base) for base in bases if base):
            if base != plan.recompute.scopes:
                recompute = Recompute(base)
                yield f"recompute={recompute.text()}", replace(plan, recompute=recompute)
    yield "recompute=full", replace(plan, recompute=Recompute((), ALL_LAYERS))
    if plan.tp > 1 and not plan.sp:
        yield "sp=true", replace(plan, sp=True)
    for mbs in (plan.mbs // 2, plan.mbs // 4, 1):
        if 1 <= mbs < plan.mbs:
            yield f"mbs={mbs}", replace(plan, mbs=mbs)
    for zero in range(plan.zero + 1, 4):
        yield f"zero={zero}", replace(plan, zero=zero)
    if plan.offload == "none":
        yield "offload=optimizer", replace(plan, offload="optimizer")
    for text in _on_the_host(situation, plan):
        yield f"act_offload={text}", replace(plan, act_offload=text)


def _on_the_host(situation: Situation, plan: Strategy) -> Iterator[str]:
    """Activations that could rest in the host's memory, where none do."""
    if plan.act_offload != "none":
        return
    yield "checkpoints" if plan.recompute.full else "blocks"
    space = situation.engine.space(situation.model, situation.job)
    if "modules" in space.act_offload and not plan.recompute.full:
        yield from (f"modules:{'+'.join(names)}" for names in space.offload_modules)
