"""Rules of what a step is cut into: micro-batches, sequences, stages and schedules."""

import numpy as np

from cost_models.engines.rules import Facts, Rule, nearest_values
from cost_models.mesh import SCHEDULES, Bool, MeshBatch
from cost_models.schedule import ScheduleName, schedule_violations
from cost_models.schedule.rules import MICRO_BATCHES
from cost_models.specs.strategy import Strategy, divisors


def _batch(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = facts.job.global_batch % (meshes.mbs * meshes.dp) != 0
    return bad


def nearest_batches(batch: int, unit: int) -> tuple[str, ...]:
    """The multiples of `unit` below and above a batch."""
    below, above = batch // unit * unit, -(-batch // unit) * unit
    values = [str(n) for n in (below, above) if n > 0 and n != batch]
    return (f"global batch {' or '.join(values)}",) if values else ()


def _batch_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    batch, mbs, dp = facts.job.global_batch, mesh["mbs"], mesh["dp"]
    nearest = nearest_batches(batch, mbs * dp)
    if batch % dp == 0:
        nearest = (*nearest_values("mbs", divisors(batch // dp), mbs), *nearest)
    return f"global batch {batch} is not divisible by mbs {mbs} x dp {dp} = {mbs * dp}", nearest


def sequence_rule(pieces: int, source: str) -> Rule:
    """A sequence divides into `pieces` for every context-parallel rank, and over the ranks of sequence parallelism.

    Two pieces, an early and a late one, give every rank as much of a causal mask.
    """

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        bad = np.zeros(meshes.size, dtype=bool)
        if facts.model.is_vision:
            return bad
        for length in {facts.job.seq_len, facts.job.decoder_seq_len}:
            need = np.where(meshes.cp > 1, pieces * meshes.cp, 1) * np.where(meshes.sp > 0, meshes.tp, 1)
            bad |= length % need != 0
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        need = (pieces * mesh["cp"] if mesh["cp"] > 1 else 1) * (mesh["tp"] if mesh["sp"] else 1)
        length = next(n for n in (facts.job.seq_len, facts.job.decoder_seq_len) if n % need)
        parts = (
            [f"{pieces} x cp {mesh['cp']}" if pieces > 1 else f"cp {mesh['cp']}"] if mesh["cp"] > 1 else []
        )
        parts += [f"tp {mesh['tp']} (sequence parallel)"] if mesh["sp"] and mesh["tp"] > 1 else []
        below, above = length // need * need, -(-length // need) * need
        nearest = tuple(f"sequence length {n}" for n in (below, above) if n > 0)
        return f"sequence length {length} is not divisible by {' x '.join(parts)} = {need}", nearest

    return Rule("sequence_length", source, broken, sentence)


def _schedule(facts: Facts, meshes: MeshBatch) -> Bool:
    """Schedule rules on the distinct (schedule, pp, vpp, micro-batches) of the batch."""
    micro = meshes.micro_batches(facts.job.global_batch)
    columns = np.stack([meshes.schedule, meshes.pp, meshes.vpp, micro])
    unique, inverse = np.unique(columns, axis=1, return_inverse=True)
    bad = np.asarray([_schedule_breaks(*(int(x) for x in column)) for column in unique.T], dtype=bool)
    return bad[inverse.reshape(-1)]


def _schedule_breaks(schedule: int, pp: int, vpp: int, micro_batches: int) -> bool:
    name = SCHEDULES[schedule]
    return not name.is_modelled or bool(schedule_violations(name, pp, vpp, micro_batches))


def _schedule_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    if not strategy.schedule.is_modelled:
        modelled = tuple(s.value for s in ScheduleName if s.is_modelled)
        return f"schedule {strategy.schedule.value} is not modelled in this version", (
            f"one of {', '.join(modelled)}",
        )
    micro = strategy.num_micro_batches(facts.job.global_batch)
    first = schedule_violations(strategy.schedule, mesh["pp"], mesh["vpp"], micro)[0]
    values, knob = first.nearest, first.knob
    if knob == MICRO_BATCHES:
        values, knob = tuple(n * mesh["mbs"] * mesh["dp"] for n in values), "global batch"
    return first.detail, (f"{knob} {' or '.join(map(str, values))}", *first.instead)


def _layers(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = meshes.pp * meshes.vpp > facts.model.num_blocks
    return bad


def _layers_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    layers, pp, vpp = facts.model.num_blocks, mesh["pp"], mesh["vpp"]
    detail = f"pp {pp} x vpp {vpp} = {pp * vpp} stages for {layers} layers leaves stages empty"
    fewer = (f"vpp {layers // pp}",) if vpp > 1 and layers >= pp else ()
    return detail, (*fewer, f"pp {max(layers // vpp, 1)} or less")


def batch_rules(batch_source: str, source: str) -> tuple[Rule, ...]:
    """Rules of batch, sequence, layers and schedule; `batch_source` is why an engine takes whole micro-batches."""
    return (
        Rule("batch", batch_source, _batch, _batch_sentence),
        sequence_rule(2, "megatron/training/arguments.py"),
        Rule("layers_stages", source, _layers, _layers_sentence),
        Rule("schedule", "megatron/core/pipeline_parallel/schedules.py", _schedule, _schedule_sentence),
    )
