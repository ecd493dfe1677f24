"""Why nothing fits, and the smallest changes that make something fit: arithmetic first, then trial evaluations."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.engines import even_stages
from cost_models.errors import BadInput
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.specs.job import JobRequest
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
        return _nothing_legal(situation, candidates)
    closest = leanest(situation, search)
    reason = _shortfall(closest) if closest else "no layout of this space fits in memory"
    found = [r for r in (_try(change, search) for change in _changes(situation)) if r is not None]
    return reason, tuple(found)


def _nothing_legal(situation: Situation, candidates: Candidates) -> tuple[str, tuple[Relaxation, ...]]:
    """Every mesh breaks a rule: name the rules, and the nearest batches where the batch is what does not divide."""
    rules = ", ".join(
        f"{rule} ({count})" for rule, count in sorted(candidates.illegal.items(), key=lambda x: -x[1])
    )
    devices, batch = situation.cluster.num_devices, situation.job.global_batch
    reason = (
        f"no legal layout on {devices} devices with global batch {batch}: {rules or 'the pins leave nothing'}"
    )
    below, above = batch // devices * devices, -(-batch // devices) * devices
    changes = [
        Relaxation("global_batch", f"global batch {n} is divisible by {devices} devices")
        for n in sorted({below, above} - {0, batch}, key=lambda n: abs(n - batch))
    ]
    if changes and "batch" in candidates.illegal:
        reason += f"; nearest global batches {' and '.join(str(r.detail.split()[2]) for r in changes)}"
    fewer = max((d for d in range(1, devices) if batch % d == 0), default=0)
    if fewer:
        changes.append(Relaxation("devices", f"{fewer} devices divide global batch {batch}"))
    return reason, tuple(changes)


def _changes(situation: Situation) -> Iterator[_Change]:
    """Changes in the order of what they cost the user."""
    job = situation.job_request
    options = dict(job.options)

    def with_job(name: str, changed: JobRequest) -> Iterator[_Change]:
        try:
            yield _Change(name, situate(situation.model, situation.cluster, changed))
        except BadInput:
            return

    for key, value in (
        ("engine.expandable_segments", True),
        ("engine.fused_cross_entropy", True),
        ("engine.grad_dtype", "bf16"),
        ("engine.moment_dtype", "bf16"),
    ):
        if options.get(key) != value:
            yield from with_job(
                f"{key}={str(value).lower()}", job.model_copy(update={"options": options | {key: value}})
            )
    if situation.cluster.is_homogeneous and len(situation.cluster.groups) == 1:
        factor = 2
        while factor <= MAX_DEVICE_FACTOR:
            yield from _more_devices(situation, factor)
            factor *= 2
    if job.seq_len and job.seq_len >= 2:
        for part in (2, 4, 8):
            length = max(job.seq_len // part, 1)
            yield from with_job(f"seq_len={length}", job.model_copy(update={"seq_len": length}))
    if job.optimizer.value == "adamw":
        yield from with_job(
            "optimizer=adam8bit", job.model_validate(job.model_dump() | {"optimizer": "adam8bit"})
        )


def _more_devices(situation: Situation, factor: int) -> Iterator[_Change]:
    devices = situation.cluster.num_devices * factor
    try:
        cluster = situation.cluster.with_devices(devices)
        yield _Change(f"devices={devices}", situate(situation.model, cluster, situation.job_request))
    except BadInput:
        return


def _try(change: _Change, search: SearchRequest) -> Relaxation | None:
    """A relaxation whose leanest layouts fit, with the best step among them; larger device counts only once."""
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
    return (
        f"nothing fits: the leanest layout found ({closest.strategy.mesh_text()}) needs "
        f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} on stage {stage.stage} "
        f"({memory.peak_phase}), {format_bytes(max(-memory.margin_bytes, 0.0))} too much; of it {parts}"
    )
