"""Bounds of many meshes at once that try every declared cut, with memory left out: the paths of chunk_cuts.py.

What the ranks of a cut hold is a number of rows of each kind: embedding, kinds of blocks, head. With C the rows on
rank i and D those on the first chunks of the ranks before it, both fixed by (schedule, p, v) and the model,

    T >= min over cuts of max_i (D F + i (e + q) + m (C t + 2 v q) + max(r_i, D B + i (e + q) + r_0)) + max_i C o

for whole backwards, without the way up where backwards are split. All cuts of all meshes of one (schedule, p, v) are a
few products of matrices.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import SCHEDULES, Int, MeshBatch
from cost_models.mesh_costs import BatchRules
from cost_models.pricing import PricedRows, Pricer
from cost_models.rows import Rows
from cost_models.schedule import stage_table
from planner.search.windows import declared_cuts, takes_every_cut

MOST_NUMBERS = 2_000_000
"""Numbers of one intermediate table: cuts x ranks x meshes."""


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Seconds of every row of many meshes, (rows, B), and what the rules of a step make of them, (B,)."""

    forward_s: Array
    backward_s: Array
    weight_s: Array
    sync_s: Array
    tail_s: Array
    static_bytes: Array
    saved_bytes: Array
    full_saved_bytes: Array
    again_s: Array  # what recomputing a row in full adds to its backward
    send_s: Array
    sync_overlap: Array
    sync_exposed_min: Array

    @classmethod
    def of(cls, priced: PricedRows, rules: BatchRules) -> "RowTimes":
        """Times of a priced batch."""
        work, states, hiding = priced.work, priced.states, rules.hiding
        size = priced.meshes.size
        return cls(
            work.forward_parts_s.sum(0),
            work.backward_parts_s.sum(0),
            work.weight_s,
            states.sync_s,
            states.optimizer_s + hiding.gather_exposed * states.gather_s,
            states.static_parts_bytes.sum(0),
            work.saved_bytes,
            work.full_saved_bytes,
            np.maximum((work.forward_parts_s - work.base_parts_s - work.spared_parts_s).sum(0), 0.0),
            np.broadcast_to(rules.send_s, (size,)),
            np.broadcast_to(hiding.sync_overlap, (size,)),
            np.broadcast_to(hiding.sync_exposed_min, (size,)),
        )

    def take(self, index: Int) -> "RowTimes":
        """Chosen meshes."""
        return RowTimes(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))

    def recomputed(self) -> "RowTimes":
        """The same with every block recomputed in full."""
        block = np.ones((len(self.saved_bytes), 1), dtype=bool)
        block[[0, -1]] = False
        return replace(
            self,
            backward_s=self.backward_s + np.where(block, self.again_s, 0.0),
            saved_bytes=np.where(block, self.full_saved_bytes, self.saved_bytes),
            again_s=np.zeros_like(self.again_s),
        )

    @classmethod
    def joined(cls, parts: "list[RowTimes]") -> "RowTimes":
        """Several batches one after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names))

    def least(self, first: Int) -> "RowTimes":
        """Times at least as good as each of those from every place in `first` to the next."""
        found = {
            name: np.minimum.reduceat(getattr(self, name), first, axis=-1)
            for name in self.__dataclass_fields__
        }
        found["weight_s"] = np.maximum.reduceat(self.weight_s, first, axis=-1)
        return RowTimes(**found | {"sync_overlap": np.maximum.reduceat(self.sync_overlap, first)})


def declared_bounds(
    pricer: Pricer, rows: Rows, meshes: MeshBatch, times: RowTimes, spare_share: Array
) -> Array:
    """Pipeline and tail seconds that no declared cut is below, (B,); 0 where every cut is declared."""
    bounds = np.zeros(meshes.size)
    points = np.stack([meshes.schedule, meshes.pp, meshes.vpp])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    micro = meshes.micro_batches(pricer.job.global_batch).astype(float)
    for index, (schedule, pp, vpp) in enumerate(unique.T.tolist()):
        if takes_every_cut(SCHEDULES[schedule], vpp, len(rows.blocks)):
            continue
        held, before = _held(schedule, pp, vpp, rows.blocks, len(rows.rows))
        here = np.flatnonzero(inverse.reshape(-1) == index)
        together = max(MOST_NUMBERS // max(held.shape[0] * pp, 1), 1)
        for start in range(0, here.size, together):
            some = here[start : start + together]
            bounds[some] = _least_cut(
                pricer, (schedule, vpp), (held, before), times.take(some), micro[some], spare_share[some]
            )
    return bounds


def _least_cut(
    pricer: Pricer,
    pipe: tuple[int, int],
    counts: tuple[Array, Array],
    times: RowTimes,
    micro: Array,
    spare_share: Array,
) -> Array:
    """The bound of meshes of one (schedule, p, v); arrays (cuts, p, B)."""
    (held, before), (schedule, vpp), overlap = counts, pipe, pricer.engine.overlap()
    shown = times.send_s * (overlap.send_shown if vpp > 1 else overlap.send_shown_plain)
    ranks = np.arange(held.shape[1])[:, None]
    splits = SCHEDULES[schedule].splits_backward
    forward = held @ times.forward_s
    backward = held @ times.backward_s
    on_the_way = ranks * (times.send_s + shown)
    busy = (micro * (forward + backward + 2.0 * vpp * shown)) * (1.0 - spare_share)
    down = (before @ times.forward_s) * (1.0 - spare_share) + on_the_way
    window = held @ times.weight_s if splits else backward + vpp * shown
    sync = held @ times.sync_s
    after = np.maximum(times.sync_exposed_min * sync, sync - times.sync_overlap * window)
    if not splits:
        up = (before @ times.backward_s) * (1.0 - spare_share) + on_the_way
        after = np.maximum(after, up + after[:, :1])
    tail = (held @ times.tail_s).max(1)
    bound: Array = ((down + busy + after).max(1) + tail).min(0)
    return bound


@lru_cache(maxsize=512)
def _held(schedule: int, pp: int, vpp: int, blocks: tuple[int, ...], num_rows: int) -> tuple[Array, Array]:
    """C and D of every declared cut, (cuts, p, rows)."""
    cuts = declared_cuts(len(blocks), pp * vpp)
    kinds = np.zeros((len(blocks) + 1, num_rows))
    kinds[np.arange(1, len(blocks) + 1), list(blocks)] = 1.0
    until = np.cumsum(kinds, axis=0)
    stop = np.cumsum(cuts, axis=1)
    stages = until[stop] - until[stop - cuts]
    stages[:, 0, 0] += 1.0
    stages[:, -1, -1] += 1.0
    held = stages[:, stage_table(SCHEDULES[schedule], pp, vpp)].sum(2)
    before = np.cumsum(stages[:, :pp], axis=1) - stages[:, :pp]
    return held, before
