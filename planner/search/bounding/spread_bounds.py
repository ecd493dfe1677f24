"""The least recompute that memory forces on all kinds of blocks together, one chunk a rank and whole backwards.

Rank i holds n_i micro-batches, so with x blocks of kind k of which y are recomputed in full

    sum_k s_k x_ik + n_i (a_k x_ik - d_k y_ik) <= M_i                  s static, a saved, d saved less when recomputed

Divided by n_i and summed over the ranks, with n the largest n_i, every cut obeys

    sum_k L_k (a_k + s_k / n) + edges - sum_i M_i / n_i <= sum_k d_k Y_k,   0 <= Y_k <= L_k

and the least seconds sum_k r_k Y_k are a fractional knapsack: the kinds that free most bytes a second come first.
"""

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import SCHEDULES, MeshBatch
from cost_models.rows import Rows
from planner.search.bounding.cut_bounds import RowTimes
from planner.search.bounding.memory_bounds import Forced, MeshSums, held_at_least
from planner.search.windows import takes_every_cut


def spread(
    meshes: MeshBatch, sums: MeshSums, times: RowTimes, rows: Rows, global_batch: int, *, allowed: bool
) -> Forced:
    """R of the mesh bounds, (B,), infinite where nothing fits; V is left at the average rank."""
    recompute = np.zeros(meshes.size)
    micro = np.minimum(meshes.micro_batches(global_batch), 4 * meshes.pp * meshes.vpp)
    points = np.stack([meshes.schedule, meshes.pp, meshes.vpp, micro])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    for index, (schedule, pp, vpp, m) in enumerate(unique.T.tolist()):
        if not takes_every_cut(SCHEDULES[schedule], vpp, len(rows.blocks)):
            continue
        here = np.flatnonzero(inverse.reshape(-1) == index)
        held = held_at_least(SCHEDULES[schedule], pp, m)
        needed = _needed_bytes(sums.take(here), times.take(here), rows, held)
        recompute[here] = _least_seconds(needed, times.take(here), rows, allowed=allowed)
    return Forced(recompute, sums.total_s / meshes.pp)


def _needed_bytes(sums: MeshSums, times: RowTimes, rows: Rows, held: Array) -> Array:
    """Bytes, a micro-batch, that recomputing must free on all ranks together, (B,).

    The head keeps what it saved for every micro-batch in flight, less what is free again when a block's backward has
    its transient (`MeshSums.last_bytes`), which is there once.
    """
    counts = np.bincount(rows.blocks, minlength=len(rows.rows)).astype(float)
    blocks = counts @ (times.saved_bytes + times.static_bytes / held.max())
    head = times.saved_bytes[-1]
    first = times.static_bytes[0] / held[0] + times.saved_bytes[0]
    last = (sums.last_bytes - head) / held[-1] + head
    needed: Array = blocks + first + last - sums.room_bytes * (1.0 / held).sum() * (1.0 + 1e-12)
    return needed


def _least_seconds(needed: Array, times: RowTimes, rows: Rows, *, allowed: bool) -> Array:
    """The knapsack, (B,)."""
    if not allowed:
        return np.where(needed > 0.0, np.inf, 0.0)
    counts = np.bincount(rows.blocks, minlength=len(rows.rows)).astype(float)[1:-1, None]
    freed = np.maximum(times.saved_bytes - times.full_saved_bytes, 0.0)[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.where(freed > 0.0, times.again_s[1:-1] / freed, np.inf)
    order = np.argsort(price, axis=0)
    price, most = np.take_along_axis(price, order, 0), np.take_along_axis(freed * counts, order, 0)
    taken = np.clip(needed - (np.cumsum(most, axis=0) - most), 0.0, most)
    seconds = np.where(taken > 0.0, taken * np.where(np.isfinite(price), price, 0.0), 0.0).sum(0)
    return np.where(needed > most.sum(0) * (1.0 + 1e-9), np.inf, seconds * (1.0 - 1e-9))
