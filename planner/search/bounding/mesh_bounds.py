"""Lower bounds of every mesh at once, before any mesh is opened: vectorised over hundreds of thousands.

For a mesh with p stages, v chunks a rank and m micro-batches let S be the least forward + backward seconds of one
micro-batch over all layers, t_min the least seconds of one block, q the seconds per chunk that sends show
(StepRules.chunk_*), R the least extra recompute seconds per micro-batch that memory forces, and V the least seconds per
micro-batch of the busiest rank that memory and whole numbers of blocks allow (memory_bounds.py):

    1F1B, GPipe   T >= (S + R + p q) / (1 - (1 - 1/m)^p)             (design, section 8; sum over the rank paths)
    whole backward T >= m ((S + R) / p + v q) + (p - 1) / 2 (t_min + q)
    split backward T >= m ((S + R) / p + v q) + (p - 1) / 2 f_min
    any           T >= m ((S + R) / p + v q) + (p - 1) / 2 f_min + max(c s, s - w b) / p
    any           T >= m (V + v q)

The second line averages the rank paths over all ranks: rank i waits for the first chunk's forwards of the i ranks
before it and is followed by as many backwards, its own work is m t_i, and sum_i t_i = S + R. Where the backward is
split, the last operation is a weight gradient, which nothing follows, so only the forwards count (f_min the least
forward of a block). The fourth lets every rank's list end with its own reduction (cost_models.hiding): s and b are the
seconds of all reductions and of one backward, recomputed in full, of all ranks together, and the shown part is convex
in both. A step adds the longest tail, at least the mean over ranks, and the per-step constant; stragglers
multiply all of it.
"""

import numpy as np

from cost_models.chunk import Array
from cost_models.hiding import paired_share
from cost_models.host import host_room_bytes
from cost_models.mesh import SCHEDULES, Int, MeshBatch
from cost_models.mesh_costs import BatchRules, batch_rules, straggler_factor
from cost_models.pricing import PricedRows, Pricer
from cost_models.rows import Rows
from cost_models.schedule.names import ScheduleName
from planner.search.bounding.memory_bounds import Blocks, Forced, MeshSums

CHUNK = 8192
"""Meshes priced together; bounds the memory of a search."""

MOST_CHUNKS = 64
"""More chunks than a rank ever has: each shows a send in its last backward."""

_WHOLE_STAGES = [SCHEDULES.index(ScheduleName.ONE_F_ONE_B), SCHEDULES.index(ScheduleName.GPIPE)]


def mesh_sums(pricer: Pricer, meshes: MeshBatch) -> MeshSums:
    """Sums of a batch; meshes that differ only in schedule and chunks are priced once."""
    base, inverse = _base(meshes)
    parts = []
    for start in range(0, base.size, CHUNK):
        priced = pricer.price(base.take(np.arange(start, min(start + CHUNK, base.size))))
        parts.append(batch_sums(pricer, priced, batch_rules(pricer, priced)))
    names = MeshSums.__dataclass_fields__
    joined = MeshSums(*(np.concatenate([getattr(p, n) for p in parts] or [np.zeros(0)]) for n in names))
    return joined.take(inverse)


def step_bounds(pricer: Pricer, meshes: MeshBatch, sums: MeshSums, forced: Forced) -> Array:
    """Lower bound of every mesh's step, seconds; infinite where nothing fits."""
    p, v = meshes.pp.astype(float), meshes.vpp.astype(float)
    m = meshes.micro_batches(pricer.job.global_batch).astype(float)
    send = 2.0 * np.where(meshes.vpp > 1, sums.send_interleaved_s, sums.send_plain_s)
    total = sums.total_s + forced.recompute_s
    ramp = np.where(_splits()[meshes.schedule], sums.forward_min_s, sums.block_min_s + send)
    average = m * (total / p + v * send) + (p - 1.0) / 2.0 * ramp
    share = -np.expm1(p * np.log1p(-1.0 / np.maximum(m, 1.0 + 1e-12)))
    whole = (total + p * send) / np.where(m > 1.0, share, 1.0)
    reduced = m * (total / p + v * send) + (p - 1.0) / 2.0 * sums.forward_min_s + sums.reduction_s / p
    average = np.maximum(average, reduced)
    pipeline = np.where(np.isin(meshes.schedule, _WHOLE_STAGES), np.maximum(average, whole), average)
    pipeline = np.maximum(pipeline, m * (forced.busiest_s + v * send))
    pipeline = pipeline * (1.0 - paired_share(pricer, meshes) * sums.spare_share)
    bound: Array = (pipeline + sums.tail_s + sums.fixed_s) * straggler_factor(pricer)
    return np.where(sums.short_bytes <= 0.0, bound, np.inf)


def _splits() -> np.ndarray:
    """Whether each of SCHEDULES splits its backward."""
    return np.asarray([schedule.splits_backward for schedule in SCHEDULES])


def frequent_blocks(rows: Rows) -> Blocks:
    """Where the blocks of other kinds than the most frequent one stand."""
    counts = np.bincount(rows.blocks)
    kind = int(np.argmax(counts))
    return Blocks(len(rows.blocks), tuple(place for place, row in enumerate(rows.blocks) if row != kind))


def _base(meshes: MeshBatch) -> tuple[MeshBatch, Int]:
    """Distinct meshes when schedule and chunks are left out."""
    names = ("tp", "cp", "pp", "ep", "etp", "dp_shard", "dp_replicate", "zero", "mbs", "sp")
    code = np.zeros(meshes.size, dtype=np.int64)
    for name in names:
        _, values = np.unique(getattr(meshes, name), return_inverse=True)
        code = code * (int(values.max(initial=0)) + 1) + values.reshape(-1)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return meshes.take(first), inverse.reshape(-1)


def batch_sums(pricer: Pricer, priced: PricedRows, rules: BatchRules) -> MeshSums:
    """Sums of a priced batch."""
    counts = np.bincount(priced.rows.layers, minlength=len(priced.rows.rows)).astype(float)
    work, states, overlap = priced.work, priced.states, pricer.engine.overlap()
    time_s = (work.forward_parts_s + work.backward_parts_s).sum(0)
    kind = 1 + int(np.argmax(counts[1:-1]))
    static = states.static_parts_bytes.sum(0)
    least_saved = np.minimum(work.saved_bytes, work.full_saved_bytes)
    pp = priced.meshes.pp.astype(float)
    transient = np.minimum(work.transient_bytes, work.full_transient_bytes)[1:-1].min(0)
    room = rules.limit_bytes - rules.workspace_bytes
    # The last rank's blocks run backward when what the head saved is free again (cost_models.chunk).
    last_transient = np.maximum(work.transient_bytes[-1], transient - work.saved_bytes[-1])
    ones = np.ones(priced.meshes.size)
    shown_s = rules.send_s * max(overlap.send_shown_plain, overlap.send_shown)
    return MeshSums(
        total_s=counts @ time_s,
        block_min_s=time_s[1:-1].min(0),
        forward_min_s=work.forward_parts_s.sum(0)[1:-1].min(0),
        tail_s=counts @ (states.optimizer_s + rules.hiding.gather_exposed * states.gather_s) / pp,
        reduction_s=_least_reduction(priced, rules, counts, shown_s),
        send_plain_s=rules.send_s * overlap.send_shown_plain,
        send_interleaved_s=rules.send_s * overlap.send_shown,
        fixed_s=rules.step_fixed_s * ones,
        room_bytes=room - transient,
        first_bytes=static[0] + work.saved_bytes[0],
        last_bytes=static[-1] + work.saved_bytes[-1] + last_transient - transient,
        short_bytes=np.maximum(
            (counts @ (static + least_saved) + last_transient - transient) / pp - (room - transient),
            counts @ states.host_bytes / pp - host_room_bytes(pricer.cluster) * (1.0 + 1e-12),
        ),
        static_bytes=static[kind],
        saved_bytes=work.saved_bytes[kind],
        full_saved_bytes=work.full_saved_bytes[kind],
        full_s=(work.forward_parts_s - work.base_parts_s - work.spared_parts_s).sum(0)[1:-1].min(0),
        block_s=time_s[kind],
        num_blocks=counts[kind] * ones,
        spare_share=spared(priced, rules),
    )


def spared(priced: PricedRows, rules: BatchRules) -> Array:
    """Largest share of a row's forward and backward that a pair of passes spares, (B,)."""
    time_s = (priced.work.forward_parts_s + priced.work.backward_parts_s).sum(0)
    share: Array = (rules.hiding.spare_s.sum(0) / np.maximum(time_s, 1e-30)).max(0)
    return share


def _least_reduction(priced: PricedRows, rules: BatchRules, counts: Array, shown_s: Array) -> Array:
    """Max(c s, s - w b) over all ranks together, (B,)."""
    work, hiding = priced.work, rules.hiding
    again_s = np.maximum(work.forward_parts_s - work.base_parts_s - work.spared_parts_s, 0.0)
    sends_s = MOST_CHUNKS * priced.meshes.pp * shown_s
    window_s = counts @ (work.backward_parts_s + again_s).sum(0) + sends_s
    sync_s = counts @ priced.states.sync_s
    least: Array = np.maximum(hiding.sync_exposed_min * sync_s, sync_s - hiding.sync_overlap * window_s)
    return least
