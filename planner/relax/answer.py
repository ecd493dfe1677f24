"""What is short in one sentence, and single changes that help, the cheapest kind first and of a kind the fastest.

Where no single change helps, changes are put on top of each other in the same order until something fits. All of it
ends at a deadline; what was found until then is the answer.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, Protocol

from cost_models.units import format_bytes, format_seconds
from planner.answers import Prediction, Relaxation
from planner.relax.changes import Asked, Change, changes
from planner.relax.clash import clash
from planner.relax.hopeless import is_hopeless
from planner.relax.lack import lack_text
from planner.relax.leanest import leanest
from planner.request import SearchRequest
from planner.situation import Situation

KINDS: Final = ("free", "restriction", "numerics", "hardware", "training")
"""Kinds of change in the order of what they cost the user."""
ONCE: Final = ("devices", "seq_len", "global_batch", "device", "job.trainable")
"""Changes of which the smallest that helps is enough."""
STACKED: Final = ("free", "numerics", "hardware")
MOST_SECONDS: Final = 20.0
MOST_PAIRS: Final = 3
"""Pairs of changes that are named where no single one helps."""
NAMED: Final = 2


class Counted(Protocol):
    """What a space held: how many layouts are legal, and how many break each rule."""

    @property
    def num_legal(self) -> int:
        """Meshes that break no rule."""
        ...

    @property
    def illegal(self) -> Mapping[str, int]:
        """Meshes by the rule that they break first."""
        ...


def relaxations(
    situation: Situation, candidates: Counted, search: SearchRequest, deadline: float = float("inf")
) -> tuple[str, tuple[Relaxation, ...]]:
    """The sentence that says what is short, and changes that make it fit, the cheapest first.

    `deadline` is a time of time.monotonic(), past which no further change is tried.
    """
    deadline = min(deadline, time.monotonic() + MOST_SECONDS)
    asked = Asked(situation, search)
    if candidates.num_legal == 0:
        return _nothing_legal(asked, candidates, deadline)
    closest = leanest(situation, search, deadline)
    reason = _shortfall(closest, situation) if closest else "no layout of this space fits in memory"
    hopeful = (
        changes(asked) if closest is None else (c for c in changes(asked) if not is_hopeless(c, closest))
    )
    found = list(_helpful(hopeful, deadline)) or list(_stacked(asked, deadline)) or _pairs(asked, deadline)
    found.sort(key=lambda one: KINDS.index(one.cost))
    return reason + _outlook(found), tuple(found)


def _helpful(tried: Iterable[Change], deadline: float) -> Iterator[Relaxation]:
    """The changes that make something fit; of counts and lengths only the smallest step."""
    settled: set[str] = set()
    for change in tried:
        if time.monotonic() > deadline:
            return
        found = None if change.key in settled else _try(change, deadline)
        if found is not None:
            yield found
            settled |= {change.key} & set(ONCE)


def _stacked(asked: Asked, deadline: float) -> Iterator[Relaxation]:
    """Changes on top of each other until something fits: settings and types first, then devices."""
    names: list[str] = []
    costs: list[str] = []
    now = asked
    for key in dict.fromkeys(change.key for change in changes(asked) if change.cost in STACKED):
        for change in [each for each in changes(now) if each.key == key]:
            if time.monotonic() > deadline:
                return
            name = ", ".join((*names, change.name))
            found = _try(Change(change.cost, name, change.situation, change.search, key), deadline)
            if found is not None:
                cost = max((*costs, change.cost), key=KINDS.index)
                yield Relaxation(name, found.detail, found.step_s, cost, found.used_bytes)
                return
        if change.cost != "hardware":
            names.append(change.name)
            costs.append(change.cost)
            now = Asked(change.situation, change.search)


def _nothing_legal(asked: Asked, candidates: Counted, deadline: float) -> tuple[str, tuple[Relaxation, ...]]:
    """Every mesh breaks a rule: name the rules, and the nearest batches where the batch is what does not divide."""
    situation = asked.situation
    rules = ", ".join(
        f"{rule} ({count})" for rule, count in sorted(candidates.illegal.items(), key=lambda x: -x[1])
    )
    devices, batch = situation.cluster.num_devices, situation.job.global_batch
    why = "; ".join(part for part in (rules, clash(situation, asked.search, deadline)) if part)
    reason = (
        f"no legal layout on {devices} devices with global batch {batch}: {why or 'nothing is left to try'}"
    )
    tried: list[Change] = []
    nearest = nearest_batches(batch, devices)
    if nearest and "batch" in candidates.illegal:
        *head, last = (str(n) for n in nearest)
        reason += f"; nearest global batches {', '.join(head)} and {last}" if head else f"; nearest {last}"
        for n in nearest:
            tried += [
                Change(c.cost, c.name, c.situation, c.search, c.name)
                for c in asked.job("training", "global_batch", n)
            ]
    tried += asked.looser()
    fewer = max((d for d in range(1, devices) if batch % d == 0), default=0)
    if fewer:
        tried += asked.devices(fewer)
    tried += [change for change in changes(asked) if change.name not in {one.name for one in tried}]
    helpful = list(_helpful(tried, deadline)) or list(islice(_helpful(_second(tried), deadline), MOST_PAIRS))
    return reason, tuple(sorted(helpful, key=lambda one: KINDS.index(one.cost)))


def _pairs(asked: Asked, deadline: float) -> list[Relaxation]:
    """Something else on top of one of the user's own restrictions lifted, the first few that help."""
    own = [change for change in changes(asked) if change.cost == "restriction"]
    return list(islice(_helpful(_second(own), deadline), MOST_PAIRS))


def _second(firsts: Iterable[Change]) -> Iterator[Change]:
    """Every change on top of each of the first ones, as one change."""
    for first in firsts:
        for second in changes(Asked(first.situation, first.search)):
            cost = max(first.cost, second.cost, key=KINDS.index)
            name = f"{first.name}, {second.name}"
            yield Change(cost, name, second.situation, second.search, second.key)


def nearest_batches(batch: int, unit: int) -> tuple[int, ...]:
    """Multiples of `unit` around a batch that is none: the two below it, the nearer one first, and the one above."""
    below = batch // unit * unit
    found = (below, below - unit, below + unit) if batch % unit else ()
    return tuple(n for n in found if n > 0)


def _try(change: Change, deadline: float) -> Relaxation | None:
    """A change whose leanest layouts fit, with the best step among them."""
    best = leanest(change.situation, change.search, deadline)
    allowed = ("fits", "at_risk") if change.search.allow_at_risk else ("fits",)
    if best is None or best.verdict not in allowed:
        return None
    memory = best.memory
    detail = (
        f"{best.strategy.mesh_text()} uses {format_bytes(memory.device_used_bytes)} of "
        f"{format_bytes(memory.capacity_bytes)} at {format_seconds(best.step_s)} a step"
    )
    return Relaxation(change.name, detail, best.step_s, change.cost, memory.device_used_bytes)


def _outlook(found: list[Relaxation]) -> str:
    """`; with devices=16 it is 52.1 GiB`: what the first changes bring the peak to."""
    named = [
        f"{'' if one.change.startswith('without ') else 'with '}{one.change} it is {format_bytes(one.used_bytes)}"
        for one in found[:NAMED]
        if one.used_bytes is not None
    ]
    return f"; {', '.join(named)}" if named else ""


def _shortfall(closest: Prediction, situation: Situation) -> str:
    """`stage 0 needs 93.1 GiB of 80.0 GiB …; 61.0 GiB of it is optimizer`, for the leanest layout."""
    memory = closest.memory
    stage = memory.stages[memory.worst_stage]
    causes = sorted(stage.by_cause.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{format_bytes(size)} {cause}" for cause, size in causes)
    return (
        f"nothing fits: the leanest layout found ({closest.strategy.mesh_text()}) needs "
        f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} on stage {stage.stage} "
        f"({memory.peak_phase}), {lack_text(closest, situation)}; of it {parts}"
    )
