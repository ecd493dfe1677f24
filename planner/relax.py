"""Why nothing fits, and the smallest changes that make something fit: arithmetic first, then trial evaluations."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.engines import even_stages
from cost_models.errors import BadInput
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.units import format_bytes
from planner.candidates import Candidates, enumerate_candidates, strategy_of
from planner.evaluate import Context, predict
from planner.plan import Prediction, Relaxation
from planner.request import SearchRequest
from planner.restrictions import read_restrictions
from planner.search.memory_bounds import MeshSums
from planner.search.mesh_bounds import mesh_sums
from planner.situation import Situation, situate

TRIED_MESHES = 48
"""Meshes with the least memory that are looked at closely per relaxation."""

MAX_DEVICE_FACTOR = 64


@dataclass(frozen=True, slots=True)
class _Change:
    """One relaxation to try: its name, and the situation it makes."""

    name: str
    situation: Situation


def relaxations(
    situation: Situation, candidates: Candidates, search: SearchRequest
) -> tuple[str, tuple[Relaxation, ...]]:
    """The sentence that says what is short, and changes that make it fit, the cheapest first."""
    if candidates.num_legal == 0:
        return _nothing_legal(situation, candidates, search)
    closest = leanest(situation, search)
    reason = _shortfall(closest) if closest else "no layout of this space fits in memory"
    return reason, tuple(_helpful(_changes(situation), search))


def _helpful(changes: Iterable[_Change], search: SearchRequest) -> Iterator[Relaxation]:
    """The changes that make something fit; of device counts and of lengths only the nearest, which come first."""
    settled: set[str] = set()
    for change in changes:
        key = change.name.partition("=")[0]
        found = None if key in settled else _try(change, search)
        if found is not None:
            yield found
            settled |= {key} & {"devices", "seq_len"}


def _nothing_legal(
    situation: Situation, candidates: Candidates, search: SearchRequest
) -> tuple[str, tuple[Relaxation, ...]]:
    """Every mesh breaks a rule: name the rules, and the nearest batches where the batch is what does not divide."""
    rules = ", ".join(
        f"{rule} ({count})" for rule, count in sorted(candidates.illegal.items(), key=lambda x: -x[1])
    )
    devices, batch = situation.cluster.num_devices, situation.job.global_batch
    reason = (
        f"no legal layout on {devices} devices with global batch {batch}: {rules or 'the pins leave nothing'}"
    )
    changes: list[_Change] = []
    nearest = nearest_batches(batch, devices)
    if nearest and "batch" in candidates.illegal:
        *head, last = (str(n) for n in nearest)
        reason += f"; nearest global batches {', '.join(head)} and {last}" if head else f"; nearest {last}"
        changes += [change for n in nearest for change in _other_job(situation, "global_batch", n)]
    fewer = max((d for d in range(1, devices) if batch % d == 0), default=0)
    if fewer:
        changes += _other_devices(situation, fewer)
    return reason, tuple(_helpful(changes, search))


def nearest_batches(batch: int, unit: int) -> tuple[int, ...]:
    """Multiples of `unit` around a batch that is none: the two below it, the nearer one first, and the one above."""
    below = batch // unit * unit
    found = (below, below - unit, below + unit) if batch % unit else ()
    return tuple(n for n in found if n > 0)


def _other_job(situation: Situation, key: str, value: object) -> Iterator[_Change]:
    """The same model and cluster with one value of the job changed."""
    job = situation.job_request
    try:
        changed = job.model_validate(job.model_dump() | {key: value})
        yield _Change(f"{key}={value}", situate(situation.model, situation.cluster, changed))
    except BadInput:
        return


def _changes(situation: Situation) -> Iterator[_Change]:
    """Changes in the order of what they cost the user."""
    job = situation.job_request
    for key, value in (
        ("engine.expandable_segments", True),
        ("engine.fused_cross_entropy", True),
        ("engine.grad_dtype", "bf16"),
        ("engine.moment_dtype", "bf16"),
    ):
        if dict(job.options).get(key) != value:
            yield from _other_option(situation, key, value)
    if situation.cluster.is_homogeneous and len(situation.cluster.groups) == 1:
        factor = 2
        while factor <= MAX_DEVICE_FACTOR:
            yield from _other_devices(situation, situation.cluster.num_devices * factor)
            factor *= 2
    if job.seq_len and job.seq_len >= 2:
        for part in (2, 4, 8):
            yield from _other_job(situation, "seq_len", max(job.seq_len // part, 1))
    if job.optimizer.value == "adamw":
        yield from _other_job(situation, "optimizer", "adam8bit")


def _other_option(situation: Situation, key: str, value: object) -> Iterator[_Change]:
    """The same request with one typed option changed; nothing where the engine does not know it."""
    options = dict(situation.job_request.options) | {key: value}
    name = f"{key}={str(value).lower()}"
    yield from (_Change(name, change.situation) for change in _other_job(situation, "options", options))


def _other_devices(situation: Situation, devices: int) -> Iterator[_Change]:
    """The same request on another number of equal devices."""
    try:
        cluster = situation.cluster.with_devices(devices)
        yield _Change(f"devices={devices}", situate(situation.model, cluster, situation.job_request))
    except BadInput:
        return


def _try(change: _Change, search: SearchRequest) -> Relaxation | None:
    """A relaxation whose leanest layouts fit, with the best step among them."""
    best = leanest(change.situation, search)
    if (
        best is None
        or best.verdict == "does_not_fit"
        or (best.verdict == "at_risk" and not search.allow_at_risk)
    ):
        return None
    memory = best.memory
    detail = (
        f"with {change.name} {best.strategy.mesh_text()} uses {format_bytes(memory.device_used_bytes)} of "
        f"{format_bytes(memory.capacity_bytes)} at {best.step_s:.3g} s a step"
    )
    return Relaxation(change.name, detail, best.step_s)


def leanest(situation: Situation, search: SearchRequest) -> Prediction | None:
    """The layout with the least peak, everything recomputed that may be; the fastest if several fit."""
    context = Context.of(situation, allow_at_risk=search.allow_at_risk)
    restrictions = read_restrictions(search.pins, search.bans)
    candidates = enumerate_candidates(situation.engine, context.facts, restrictions)
    predictions: list[Prediction] = []
    for batch in candidates.batches:
        if batch.size == 0:
            continue
        chosen = np.argsort(_least_bytes(mesh_sums(context.pricer, batch), batch.pp), kind="stable")[
            :TRIED_MESHES
        ]
        few = batch.take(chosen)
        priced = context.pricer.price(few)
        rules = batch_rules(context.pricer, priced)
        full = 0 if few.key.scopes or not restrictions.may_recompute_fully else ALL_LAYERS
        for row in range(few.size):
            stages = even_stages(context.facts.model.num_blocks, int(few.pp[row] * few.vpp[row]))
            strategy = strategy_of(few, row, stages, Recompute(few.key.scopes, full))
            predictions.append(predict(context, strategy, mesh_costs(context.pricer, priced, rules, row)))
    if not predictions:
        return None
    fitting = [p for p in predictions if p.verdict == "fits"]
    if fitting:
        return min(fitting, key=lambda p: p.step_s)
    return min(predictions, key=lambda p: p.memory.device_used_bytes)


def _least_bytes(sums: MeshSums, pp: np.ndarray) -> np.ndarray:
    """A guess of the least peak: the fullest rank's bound, with in-flight boundary tensors of its share of blocks."""
    guess: np.ndarray = sums.short_bytes + sums.num_blocks / pp * (pp - 1) * sums.full_saved_bytes
    return guess


def _shortfall(closest: Prediction) -> str:
    """`stage 0 needs 93.1 GiB of 80.0 GiB …; 61.0 GiB of it is optimizer`, for the leanest layout."""
    memory = closest.memory
    stage = memory.stages[memory.worst_stage]
    causes = sorted(stage.by_cause.items(), key=lambda item: -item[1])[:3]
    parts = ", ".join(f"{format_bytes(size)} {cause}" for cause, size in causes)
    short = f"{format_bytes(-memory.margin_bytes)} too much"
    if memory.margin_bytes >= 0.0:
        short = f"a risk of {closest.oom_probability:.0%} to run out of memory; --allow-at-risk takes it"
    return (
        f"nothing fits: the leanest layout found ({closest.strategy.mesh_text()}) needs "
        f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} on stage {stage.stage} "
        f"({memory.peak_phase}), {short}; of it {parts}"
    )
