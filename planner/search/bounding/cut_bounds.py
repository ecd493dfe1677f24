"""Bounds of many meshes at once that try every declared cut, with memory left out: the paths of chunk_cuts.py.

What the ranks of a cut hold is a number of rows of each kind: embedding, kinds of blocks, head. With C the rows on
rank i and D those on the first chunks of the ranks before it, both fixed by (schedule, p, v) and the model,

    T >= min over cuts of max_i (D F + i (e + q) + m (C t + 2 v q) + max(r_i, D B + i (e + q) + r_0)) + max_i C o

for whole backwards, without the way up where backwards are split. All cuts of all meshes of one (schedule, p, v) are a
few products of matrices.
"""

from collections.abc import Callable
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

MOST_NUMBERS = 200_000
"""Numbers of one intermediate table: cuts x ranks x meshes."""


Late = Callable[[], bool]


def never() -> bool:
    """Time is no matter."""
    return False


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
    pricer: Pricer, rows: Rows, meshes: MeshBatch, times: RowTimes, spare_share: Array, late: Late = never
) -> Array:
    """Pipeline and tail seconds that no declared cut is below, (B,); 0 where every cut is declared, or it is late."""
    bounds = np.zeros(meshes.size)
    points = np.stack([meshes.schedule, meshes.pp, meshes.vpp])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    micro = meshes.micro_batches(pricer.job.global_batch).astype(float)
    for index, (schedule, pp, vpp) in enumerate(unique.T.tolist()):
        if takes_every_cut(SCHEDULES[schedule], vpp, len(rows.blocks)):
            continue
        ranks = telling_ranks(schedule, pp, vpp, rows.blocks, len(rows.rows))
        here = np.flatnonzero(inverse.reshape(-1) == index)
        together = max(MOST_NUMBERS // max(ranks.place.size, 1), 1)
        for start in range(0, here.size, together):
            if late():
                return bounds
            some = here[start : start + together]
            bounds[some] = _least_cut(
                pricer, (schedule, vpp), ranks, times.take(some), micro[some], spare_share[some]
            )
    return bounds


@dataclass(frozen=True, slots=True)
class TellingRanks:
    """Of every cut the ranks that can have the longest path, r of them, rank 0 first; places of ranks (cuts, r)."""

    held: Array  # (cuts, r, rows) C
    before: Array  # (cuts, r, rows) D
    place: Array  # (cuts, r) i

    def rows_of(self, counts: Array, values: Array) -> Array:
        """Sums of rows' values (rows, B) by counts of rows, (cuts, r, B)."""
        summed: Array = (counts.reshape(-1, counts.shape[-1]) @ values).reshape(*self.place.shape, -1)
        return summed


def _least_cut(
    pricer: Pricer,
    pipe: tuple[int, int],
    ranks: TellingRanks,
    times: RowTimes,
    micro: Array,
    spare_share: Array,
) -> Array:
    """The bound of meshes of one (schedule, p, v); arrays (cuts, r, B)."""
    (schedule, vpp), overlap = pipe, pricer.engine.overlap()
    shown = times.send_s * (overlap.send_shown if vpp > 1 else overlap.send_shown_plain)
    splits = SCHEDULES[schedule].splits_backward
    forward, backward = (ranks.rows_of(ranks.held, of) for of in (times.forward_s, times.backward_s))
    on_the_way = ranks.place[:, :, None] * (times.send_s + shown)
    busy = (micro * (forward + backward + 2.0 * vpp * shown)) * (1.0 - spare_share)
    down = ranks.rows_of(ranks.before, times.forward_s) * (1.0 - spare_share) + on_the_way
    window = ranks.rows_of(ranks.held, times.weight_s) if splits else backward + vpp * shown
    sync = ranks.rows_of(ranks.held, times.sync_s)
    after = np.maximum(times.sync_exposed_min * sync, sync - times.sync_overlap * window)
    if not splits:
        up = ranks.rows_of(ranks.before, times.backward_s) * (1.0 - spare_share) + on_the_way
        after = np.maximum(after, up + after[:, :1])
    tail = ranks.rows_of(ranks.held, times.tail_s).max(1)
    bound: Array = ((down + busy + after).max(1) + tail).min(0)
    return bound


@lru_cache(maxsize=512)
def telling_ranks(schedule: int, pp: int, vpp: int, blocks: tuple[int, ...], num_rows: int) -> TellingRanks:
    """C, D and i of every declared cut that may be the least, of the ranks that can be the longest.

    Of ranks with the same rows the last one has the longest path: D and i grow with the rank (rank 0 alone holds the
    embedding). Of cuts whose ranks have the same rows, one is never the least where another's D and i are no more.
    """
    held, before = _held(schedule, pp, vpp, blocks, num_rows)
    if not len(held):
        return TellingRanks(held, before, np.zeros((0, pp)))
    kinds, kind = np.unique(held.reshape(-1, num_rows), axis=0, return_inverse=True)
    kind = kind.reshape(held.shape[:2])
    last = np.full((len(held), len(kinds)), -1)
    for rank in range(pp):
        last[np.arange(len(held)), kind[:, rank]] = rank
    kept = _least_cuts(last, before, kind[:, 0])
    return _padded(held[kept], before[kept], last[kept])


def _least_cuts(last: Int, before: Array, first: Int) -> Int:
    """Cuts that no other one of the same rows is nowhere above; `last` is the last rank of every kind, or -1."""
    height = np.concatenate(
        (
            np.where(last[:, :, None] >= 0, before[np.arange(len(last))[:, None], last], 0.0),
            np.maximum(last, 0)[:, :, None],
        ),
        axis=2,
    ).reshape(len(last), -1)
    _, group = np.unique(np.column_stack((last >= 0, first)), axis=0, return_inverse=True)
    kept: list[int] = []
    for one in range(int(group.max()) + 1):
        here = np.flatnonzero(group.reshape(-1) == one)
        _, distinct = np.unique(height[here], axis=0, return_index=True)
        left = here[distinct[np.argsort(height[here[distinct]].sum(1), kind="stable")]]
        while left.size:  # the lowest sum that is left is above none of the others
            kept.append(int(left[0]))
            left = left[1:][(height[left[1:]] < height[left[0]]).any(1)]
    return np.asarray(sorted(kept), dtype=np.int64)


def _padded(held: Array, before: Array, last: Int) -> TellingRanks:
    """The last ranks of every kind, rank 0 first and again where a cut has fewer kinds than others."""
    ranks = np.sort(np.where(last >= 0, last, 0), axis=1)
    others = int((ranks > 0).sum(1).max(initial=0))
    ranks = np.concatenate(
        (np.zeros((len(ranks), 1), dtype=np.int64), ranks[:, ranks.shape[1] - others :]), axis=1
    )
    cut = np.arange(len(ranks))[:, None]
    return TellingRanks(held[cut, ranks], before[cut, ranks], ranks.astype(float))


@lru_cache(maxsize=512)
def _held(schedule: int, pp: int, vpp: int, blocks: tuple[int, ...], num_rows: int) -> tuple[Array, Array]:
    """C and D of every declared cut, (cuts, p, rows)."""
    stages = stage_rows(pp * vpp, blocks, num_rows)
    held = stages[:, stage_table(SCHEDULES[schedule], pp, vpp)].sum(2)
    before = np.cumsum(stages[:, :pp], axis=1) - stages[:, :pp]
    return held, before


def stage_rows(count: int, blocks: tuple[int, ...], num_rows: int) -> Array:
    """How many rows of each kind every virtual stage of every declared cut holds, (cuts, count, rows)."""
    cuts = declared_cuts(len(blocks), count)
    kinds = np.zeros((len(blocks) + 1, num_rows))
    kinds[np.arange(1, len(blocks) + 1), list(blocks)] = 1.0
    until = np.cumsum(kinds, axis=0)
    stop = np.cumsum(cuts, axis=1)
    stages: Array = until[stop] - until[stop - cuts]
    stages[:, 0, 0] += 1.0
    stages[:, -1, -1] += 1.0
    return stages
