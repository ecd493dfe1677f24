"""Lower bounds of every mesh of a pipeline that passes through several pools, before any mesh is opened.

Rank i, on the devices of its pool, is busy t_i seconds with one micro-batch. For every choice of stages

    1F1B, GPipe   T >= sum_{j<i} t_j + m t_i          (down to rank i, through its list, up again)
    any           T >= m t_i + h_i                     h_i: the first chunk of the ranks before it, one block at least

Weighed by any y_i >= 0 and summed, T sum y_i >= sum_i z_i t_i (+ sum_i y_i h_i), with z_i = m y_i + sum_{j>i} y_j on
the first line and m y_i on the second. Every row of the model lies on some rank, so sum_i z_i t_i is at least

    the embedding on rank 0, the head on rank p - 1, every block where z_i (its seconds there) is least.

Blocks of the most frequent kind are filled into the ranks by what they cost, as far as memory lets them, and more for
recomputed ones beside (capacity.py). Weights are chosen so that one block costs the same on every pool: y falls out of
z_i = 1 / (seconds of a block on rank i), cut at 0.

Whole numbers: for every division X of the blocks over the pools, pool k's fullest rank holds ceil(X_k / p_k) of them,
and at least v. With S_k the seconds that the pools before it take for one micro-batch, pool k alone says

    T >= S_k + m (c_k ceil(X_k / p_k) + recompute of that rank)         and, on the first line above,
    T >= S_k + X_k c_k / (1 - (1 - 1/m)^p_k)

with S_k = 0 (but one block a rank) on the second line. The least over X of the largest over k is a bound. So is what
any one rank spends on a block in each chunk and on its sends, some of which cross from pool to pool.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cost_models.chunk import Array, Index
from cost_models.communication import Network
from cost_models.mesh import SCHEDULES, Int, MeshBatch
from cost_models.mesh_costs import fixed_seconds
from cost_models.overlap import expected_maximum_factor
from cost_models.schedule.names import ScheduleName
from planner.search.mixed.capacity import Line, Ranks, ranks_of
from planner.search.mixed.pool_sums import PoolSums

WHOLE_STAGES = (ScheduleName.ONE_F_ONE_B, ScheduleName.GPIPE)

DIVISIONS_TOGETHER = 2_000_000
"""Divisions times meshes that are looked at in one go."""


@dataclass(frozen=True, slots=True)
class Recomputes:
    """What may be recomputed in full: nothing, a chosen number of blocks, or every block."""

    free: bool
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """What all meshes of a batch share: pools in order, blocks of every kind, the network of all devices."""

    sums: tuple[PoolSums, ...]
    counts: Array  # blocks of every kind
    whole: Network
    recomputes: Recomputes
    uniform: bool
    """Whether the engine takes one number of fully recomputed blocks for all stages."""

    def take(self, index: Int) -> "Frame":
        """The frame of chosen meshes."""
        return replace(self, sums=tuple(pool.take(index) for pool in self.sums))


def quick_bounds(frame: Frame, meshes: MeshBatch, global_batch: int) -> Array:
    """A bound of every mesh's step from the second line above with flat weights alone, seconds: no memory, no sends.

    With w_k = 1 / (seconds of a frequent block on pool k) for its p_k ranks, T >= m (sum of rows where w is least) /
    sum_k p_k w_k.
    """
    kind = int(np.argmax(frame.counts))
    weight = np.stack([1.0 / np.maximum(pool.kinds_s[kind], 1e-30) for pool in frame.sums])
    ranks = np.stack([pool.devices // meshes.ranks_per_stage for pool in meshes.key.pools])
    rows = np.stack([pool.kinds_s for pool in frame.sums]) * weight[:, None]
    work = frame.counts @ rows.min(axis=0)
    work = work + weight[0] * frame.sums[0].embedding_s + weight[-1] * frame.sums[-1].head_s
    busy = meshes.micro_batches(global_batch) * work / (ranks * weight).sum(axis=0)
    return _whole(frame, meshes, busy * (1.0 - 1e-12))


def mixed_bounds(frame: Frame, meshes: MeshBatch, global_batch: int, late: Callable[[], bool]) -> Array:
    """Lower bound of every mesh's step, seconds; infinite where nothing fits."""
    micro = meshes.micro_batches(global_batch)
    ranks = np.stack([pool.devices // meshes.ranks_per_stage for pool in meshes.key.pools])
    points = np.concatenate((np.stack([meshes.schedule, meshes.vpp, micro]), ranks))
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    pipeline = np.zeros(meshes.size)
    for index, point in enumerate(unique.T.tolist()):
        here = np.flatnonzero(inverse.reshape(-1) == index)
        if late():
            break
        sums = tuple(pool.take(here) for pool in frame.sums)
        schedule, vpp, m, *of_pools = point
        line = Line(SCHEDULES[schedule], vpp, m, tuple(of_pools))
        pipeline[here] = _pipeline_bound(sums, frame, line)
    return _whole(frame, meshes, pipeline)


def _whole(frame: Frame, meshes: MeshBatch, pipeline_s: Array) -> Array:
    """The step of a pipeline's seconds, with its tail and what every step takes."""
    tail = np.min([pool.tails_s for pool in frame.sums], axis=0)
    counts = np.concatenate((frame.counts, [1.0, 1.0]))
    tail_s = counts @ tail / meshes.pp
    factor = float(expected_maximum_factor(frame.whole.num_devices, frame.whole.noise))
    bound: Array = (pipeline_s + tail_s + fixed_seconds(meshes, frame.whole)) * factor
    return bound


def _pipeline_bound(sums: tuple[PoolSums, ...], frame: Frame, line: Line) -> Array:
    """Seconds up to the barrier, (B,): the best of the three families."""
    kind = int(np.argmax(frame.counts))
    uniform = frame.recomputes.free and (frame.uniform or line.vpp > 1)
    ranks = ranks_of(sums, line, kind, float(frame.counts[kind]), uniform=uniform)
    wanted = 1.0 / np.maximum(ranks.block_s, 1e-30)
    flat = wanted / line.m
    best = _weighed(sums, frame, line, (ranks, flat, line.m * flat))
    if line.schedule in WHOLE_STAGES:
        y, z = _nested_weights(wanted, line.m)
        best = np.maximum(best, _weighed(sums, frame, line, (ranks, y, z)))
    alone = line.m * (line.shown_s(sums, line.links_s(sums)) + _least_chunks(sums, line))
    bound: Array = np.maximum.reduce([best, _divided(sums, frame, line, ranks), alone.max(axis=0)])
    return bound


def _least_chunks(sums: tuple[PoolSums, ...], line: Line) -> Array:
    """Least seconds of every rank: a block in each chunk, (p, B)."""
    least: Array = line.vpp * np.stack([pool.kinds_s.min(axis=0) for pool in sums])[line.pool_of_rank]
    return least


def _nested_weights(wanted: Array, m: int) -> tuple[Array, Array]:
    """Weights y >= 0 with m y_i + sum_{j>i} y_j as near to `wanted` as that allows, and these sums z, (p, B) each."""
    weights, reached = np.empty_like(wanted), np.empty_like(wanted)
    behind = np.zeros(wanted.shape[1])
    for rank in range(len(wanted) - 1, -1, -1):
        weights[rank] = np.maximum(wanted[rank] - behind, 0.0) / m
        reached[rank] = m * weights[rank] + behind
        behind = behind + weights[rank]
    return weights, reached


def _weighed(
    sums: tuple[PoolSums, ...], frame: Frame, line: Line, weighed: tuple[Ranks, Array, Array]
) -> Array:
    """The weighed sum over all rows, divided by the sum of the weights, (B,)."""
    ranks, y, z = weighed
    place, kind = line.pool_of_rank, int(np.argmax(frame.counts))
    edges = z[0] * sums[0].embedding_s + z[-1] * sums[-1].head_s
    links_s = line.links_s(sums)
    shown_s = line.shown_s(sums, links_s)
    ways_s = 2.0 * (np.cumsum(links_s, axis=0) - links_s)
    shown = (z * shown_s + y * ways_s).sum(axis=0)
    rest = np.zeros_like(edges)
    for other, count in enumerate(frame.counts):
        if other != kind and count:
            each = np.stack([pool.kinds_s[other] for pool in sums])[place] * z
            rest = rest + count * each.min(axis=0)
    total = edges + shown + rest + _filled(ranks, float(frame.counts[kind]), z)
    if line.schedule not in WHOLE_STAGES:
        least = np.stack([pool.kinds_s.min(axis=0) for pool in sums])[place]
        waited = np.cumsum(least, axis=0) - least
        total = total + (y * waited).sum(axis=0)
    bound: Array = total / y.sum(axis=0)
    return bound


def _filled(ranks: Ranks, blocks: float, z: Array) -> Array:
    """Least weighed seconds of all blocks of the frequent kind on ranks that hold only so many, (B,)."""
    time_s, again_s = ranks.block_s * z, ranks.again_s * z
    places = np.concatenate((ranks.free, ranks.most - ranks.free))
    found = _filling(places, np.concatenate((time_s, time_s + again_s * ranks.price)), blocks)
    return found


def _filling(room: Array, cost: Array, blocks: float) -> Array:
    """Least cost of `blocks` in places (n, B) of limited room, the cheapest first; infinite without enough room."""
    order = np.argsort(cost, axis=0)
    room, cost = np.take_along_axis(room, order, 0), np.take_along_axis(cost, order, 0)
    before = np.cumsum(room, axis=0) - room
    taken = np.clip(blocks - before, 0.0, room)
    total: Array = np.where(room.sum(axis=0) < blocks - 1e-6, np.inf, (taken * cost).sum(axis=0))
    return total


def _divided(sums: tuple[PoolSums, ...], frame: Frame, line: Line, ranks: Ranks) -> Array:
    """The bound by whole numbers of blocks on every pool, (B,)."""
    blocks = int(frame.counts.sum())
    found = divisions(tuple(count * line.vpp for count in line.ranks), blocks)
    size = ranks.block_s.shape[1]
    if not len(found):
        return np.full(size, np.inf)
    step = max(1, DIVISIONS_TOGETHER // len(found))
    parts = [slice(start, start + step) for start in range(0, size, step)]
    return np.concatenate([_Divided(sums, frame, line, ranks, part).bound(found) for part in parts])


@dataclass(frozen=True, slots=True)
class _Divided:
    """The bound by divisions of some of the meshes; arrays (divisions, meshes)."""

    sums: tuple[PoolSums, ...]
    frame: Frame
    line: Line
    ranks: Ranks
    part: slice

    def bound(self, found: Index) -> Array:
        """The least over all divisions of the largest over all pools, (meshes,)."""
        place, whole = self.line.pool_of_rank, self.line.schedule in WHOLE_STAGES
        number = self._number(found)
        longest = np.zeros(number.shape)
        before = np.broadcast_to(self.sums[0].embedding_s[self.part], longest.shape)
        shown_s = self.line.shown_s(self.sums, self.line.links_s(self.sums))[:, self.part]
        for pool, count in enumerate(self.line.ranks):
            held = found[:, [pool]].astype(float)
            alone, total_s = self._busy(pool, held / count, number), self._seconds(pool, held)
            alone = alone + self.line.m * shown_s[place == pool].min(axis=0)
            total_s = total_s + shown_s[place == pool].sum(axis=0)
            if whole:
                total_s = total_s + self._forced(pool, held)
                share = -np.expm1(count * np.log1p(-1.0 / self.line.m)) if self.line.m > 1 else 1.0
                alone = np.maximum(alone, total_s / share)
            room = self.ranks.room[-1][place == pool][:, self.part].sum(axis=0)
            longest = np.maximum(longest, np.where(held - self._others > room, np.inf, before + alone))
            least_s = count * self.sums[pool].kinds_s[:, self.part].min(axis=0)
            before = before + (total_s if whole else least_s)
        least: Array = longest.min(axis=0)
        return least

    @property
    def _others(self) -> float:
        """Blocks of other kinds than the most frequent."""
        return float(self.frame.counts.sum() - self.frame.counts.max())

    def _number(self, found: Index) -> Array:
        """Least K under which every pool holds its blocks."""
        rooms, place = self.ranks.room, self.line.pool_of_rank
        number = np.zeros((len(found), rooms[0, 0, self.part].size))
        for pool in range(len(self.line.ranks)):
            held = found[:, [pool]] - self._others
            own = np.zeros(number.shape)
            for room in rooms[:-1, place == pool][:, :, self.part].sum(axis=1):
                own += held > room
            number = np.maximum(number, own)
        return number

    def _seconds(self, pool: int, held: Array) -> Array:
        """Least seconds of so many blocks on a pool's devices."""
        kind = int(np.argmax(self.frame.counts))
        block_s = self.sums[pool].kinds_s[kind, self.part]
        less_s = block_s - self.sums[pool].kinds_s[:, self.part].min(axis=0)
        least: Array = block_s * held - less_s * np.minimum(held, self._others)
        return least

    def _busy(self, pool: int, average: Array, number: Array) -> Array:
        """Least seconds of a step on the fullest rank, its recompute of `number` blocks a chunk included."""
        fullest, v = np.ceil(average - 1e-9), self.line.vpp
        again = v * np.minimum(number, np.floor(fullest / v)) - (2.0 if v > 1 else 0.0)
        again_s = self.sums[pool].full_s[self.part] * np.maximum(again, 0.0)
        busy: Array = self.line.m * (self._seconds(pool, fullest) + again_s)
        return busy

    def _forced(self, pool: int, held: Array) -> Array:
        """Recompute of a pool's ranks together beyond the blocks that they hold without it."""
        own, part = self.line.pool_of_rank == pool, self.part
        free = self.ranks.free[own][:, part].sum(axis=0)
        price_s = (self.ranks.price[own][:, part] * self.ranks.again_s[own][:, part]).min(axis=0)
        forced: Array = np.maximum(held - free - self._others, 0.0) * price_s
        return forced


@lru_cache(maxsize=1024)
def divisions(sizes: tuple[int, ...], num_blocks: int) -> Index:
    """All ways to give pools of `sizes` virtual stages at least one block a stage, (n, pools)."""
    if len(sizes) == 1:
        return np.full((int(num_blocks >= sizes[0]), 1), num_blocks, dtype=np.int64)
    parts = [np.zeros((0, len(sizes)), dtype=np.int64)]
    for first in range(sizes[0], num_blocks - sum(sizes[1:]) + 1):
        rest = divisions(sizes[1:], num_blocks - first)
        parts.append(np.concatenate((np.full((len(rest), 1), first), rest), axis=1))
    return np.concatenate(parts)
