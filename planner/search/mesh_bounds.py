"""Lower bounds of every mesh at once, before any mesh is opened: vectorised over hundreds of thousands.

For a mesh with p stages, v chunks a rank and m micro-batches let S be the least forward + backward seconds of one
micro-batch over all layers, t_min the least seconds of one block, q the seconds per chunk that sends show
(StepRules.chunk_*), R the least extra recompute seconds per micro-batch that memory forces. Every stage has a block:

    1F1B, GPipe   T >= (S + R + p q) / (1 - (1 - 1/m)^p)             (design, section 8; sum over the rank paths)
    any           T >= m ((S + R) / p + v q) + (p - 1) / 2 (t_min + q)

The second line averages the rank paths over all ranks: rank i waits for the first chunk's forwards of the i ranks
before it and is followed by as many backwards, its own work is m t_i, and sum_i t_i = S + R. A step adds the longest
tail, at least the mean over ranks, and the per-step constant; stragglers multiply all of it.

R, for the most frequent kind of block alone (L of them; the others are taken to weigh nothing): rank i holds x_i blocks
with n_i micro-batches in flight, s static bytes each, a saved or f saved under full recompute. Blocks that fit without
recompute: c_i = M / (s + n_i a). Each further block needs (s + n_i a) / (n_i (a - f)) recomputed ones, at most until
all are: M / (s + n_i f). Filling the cheapest ranks first gives the least number, a fractional knapsack; where even that
holds fewer than L blocks, the mesh is out of memory. For interleaving n_i is the largest count that every chunk of some
Pareto vector reaches, so that no distribution of blocks over chunks can do with less.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import SCHEDULES, Int, MeshBatch
from cost_models.mesh_costs import BatchRules, batch_rules, straggler_factor
from cost_models.pricing import PricedRows, Pricer
from cost_models.schedule import in_flight
from cost_models.schedule.names import ScheduleName

CHUNK = 8192
"""Meshes priced together; bounds the memory of a search."""

_WHOLE_STAGES = [SCHEDULES.index(ScheduleName.ONE_F_ONE_B), SCHEDULES.index(ScheduleName.GPIPE)]


@dataclass(frozen=True, slots=True)
class MeshSums:
    """Sums over the layers of each mesh, arrays (B,); the last seven describe the most frequent kind of block."""

    total_s: Array
    block_min_s: Array
    tail_s: Array
    send_plain_s: Array
    send_interleaved_s: Array
    fixed_s: Array
    room_bytes: Array  # M: the limit less constants and the mean static bytes of all other layers being 0
    short_bytes: Array  # bound on the fullest rank less the limit; above 0 nothing fits
    static_bytes: Array
    saved_bytes: Array
    full_saved_bytes: Array
    full_s: Array
    num_blocks: Array

    def take(self, index: Int) -> "MeshSums":
        """Chosen meshes."""
        return MeshSums(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def mesh_sums(pricer: Pricer, meshes: MeshBatch) -> MeshSums:
    """Sums of a batch; meshes that differ only in schedule and chunks are priced once."""
    base, inverse = _base(meshes)
    parts = []
    for start in range(0, base.size, CHUNK):
        priced = pricer.price(base.take(np.arange(start, min(start + CHUNK, base.size))))
        parts.append(_sums(pricer, priced, batch_rules(pricer, priced)))
    names = MeshSums.__dataclass_fields__
    joined = MeshSums(*(np.concatenate([getattr(p, n) for p in parts] or [np.zeros(0)]) for n in names))
    return joined.take(inverse)


def step_bounds(pricer: Pricer, meshes: MeshBatch, sums: MeshSums, forced_s: Array | float = 0.0) -> Array:
    """Lower bound of every mesh's step with `forced_s` recompute a micro-batch; infinite where nothing fits."""
    p, v = meshes.pp.astype(float), meshes.vpp.astype(float)
    m = meshes.micro_batches(pricer.job.global_batch).astype(float)
    send = 2.0 * np.where(meshes.vpp > 1, sums.send_interleaved_s, sums.send_plain_s)
    total = sums.total_s + forced_s
    average = m * (total / p + v * send) + (p - 1.0) / 2.0 * (sums.block_min_s + send)
    share = -np.expm1(p * np.log1p(-1.0 / np.maximum(m, 1.0 + 1e-12)))
    whole = (total + p * send) / np.where(m > 1.0, share, 1.0)
    pipeline = np.where(np.isin(meshes.schedule, _WHOLE_STAGES), np.maximum(average, whole), average)
    bound: Array = (pipeline + sums.tail_s + sums.fixed_s) * straggler_factor(pricer)
    return np.where(sums.short_bytes <= 0.0, bound, np.inf)


def forced_recompute_s(pricer: Pricer, meshes: MeshBatch, sums: MeshSums, *, may_recompute: bool) -> Array:
    """R of the module's text, seconds per micro-batch; infinite where memory rules the mesh out."""
    forced = np.zeros(meshes.size)
    micro = meshes.micro_batches(pricer.job.global_batch)
    points = np.stack([meshes.schedule, meshes.pp, meshes.vpp, np.minimum(micro, 4 * meshes.pp * meshes.vpp)])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    for index, (schedule, pp, vpp, m) in enumerate(unique.T.tolist()):
        here = np.flatnonzero(inverse.reshape(-1) == index)
        held = np.asarray(_held(schedule, pp, vpp, m), dtype=float)
        forced[here] = _fill(sums.take(here), held, may_recompute)
    return forced


@lru_cache(maxsize=4096)
def _held(schedule: int, pp: int, vpp: int, m: int) -> tuple[int, ...]:
    """n_i of every rank: the largest count that all chunks of some vector reach (fewer micro-batches hold less)."""
    name = SCHEDULES[schedule]
    if name is ScheduleName.INTERLEAVED:
        m = max(m // pp * pp, pp)
    vectors = in_flight(name, pp, vpp, m).vectors
    return tuple(max(min(vector) for vector in of_rank) for of_rank in vectors)


def _fill(sums: MeshSums, held: Array, may_recompute: bool) -> Array:
    """Recompute seconds of the fractional knapsack for meshes with equal in-flight counts; shapes (B, p)."""
    count = np.maximum(held, 1.0)[None, :]
    static, saved, full = (x[:, None] for x in (sums.static_bytes, sums.saved_bytes, sums.full_saved_bytes))
    room = np.maximum(sums.room_bytes, 0.0)[:, None]
    free = room / (static + count * saved)
    missing = sums.num_blocks - free.sum(1)
    spare = np.maximum(saved - full, 0.0)
    if not may_recompute:
        return np.where(missing > 1e-9, np.inf, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.where(spare > 0.0, (static + count * saved) / (count * spare), np.inf)
    extra = np.maximum(room / (static + count * np.minimum(saved, full)) - free, 0.0)
    order = np.argsort(price, axis=1)
    price, extra = np.take_along_axis(price, order, 1), np.take_along_axis(extra, order, 1)
    before = np.cumsum(extra, axis=1) - extra
    taken = np.clip(missing[:, None] - before, 0.0, extra)
    layers = np.where(taken > 0.0, taken * np.where(np.isfinite(price), price, 0.0), 0.0).sum(1)
    return np.where(missing > extra.sum(1) + 1e-9, np.inf, layers * sums.full_s)


def _base(meshes: MeshBatch) -> tuple[MeshBatch, Int]:
    """Distinct meshes when schedule and chunks are left out."""
    names = ("tp", "cp", "pp", "ep", "etp", "dp_shard", "dp_replicate", "zero", "mbs", "sp")
    code = np.zeros(meshes.size, dtype=np.int64)
    for name in names:
        _, values = np.unique(getattr(meshes, name), return_inverse=True)
        code = code * (int(values.max(initial=0)) + 1) + values.reshape(-1)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return meshes.take(first), inverse.reshape(-1)


def _sums(pricer: Pricer, priced: PricedRows, rules: BatchRules) -> MeshSums:
    counts = np.bincount(priced.rows.layers, minlength=len(priced.rows.rows)).astype(float)
    work, states, overlap = priced.work, priced.states, pricer.engine.overlap()
    time_s = (work.forward_parts_s + work.backward_parts_s).sum(0)
    kind = 1 + int(np.argmax(counts[1:-1]))
    static = states.static_parts_bytes.sum(0)
    least_saved = np.minimum(work.saved_bytes, work.full_saved_bytes)
    pp = priced.meshes.pp.astype(float)
    room = rules.limit_bytes - pricer.engine.workspace_bytes
    ones = np.ones(priced.meshes.size)
    return MeshSums(
        total_s=counts @ time_s,
        block_min_s=time_s[1:-1].min(0),
        tail_s=counts @ (states.optimizer_s + overlap.gather_exposed * states.gather_s) / pp,
        send_plain_s=rules.send_s * overlap.send_shown_plain,
        send_interleaved_s=rules.send_s * overlap.send_shown,
        fixed_s=rules.step_fixed_s * ones,
        room_bytes=room,
        short_bytes=counts @ (static + least_saved) / pp - room,
        static_bytes=static[kind],
        saved_bytes=work.saved_bytes[kind],
        full_saved_bytes=work.full_saved_bytes[kind],
        full_s=(work.forward_parts_s - work.base_parts_s).sum(0)[kind],
        num_blocks=counts[kind] * ones,
    )
