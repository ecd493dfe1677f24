"""What memory forces on a mesh whatever its stages: recompute, and a rank that holds many blocks. Vectorised, sound.

Only the most frequent kind of block counts (L of them, s static bytes each, a saved bytes per micro-batch in flight,
f of them under full recompute, t seconds to run); other blocks weigh nothing, but a recomputed block of any kind costs
at least r seconds. M is the room of a rank, less the embedding on the first and the head on the last. A rank's
in-flight counts are vectors n over its chunks; whichever vector is taken, the rank must hold it.

One K for all stages. A chunk of x blocks saves at least a x - K (a - f), and at least f x. With every chunk at its
least size l_c and the other blocks on the chunk with the smallest n, vector n lets rank i hold at most

    X_i(K) = sum_c l_c + (M - s sum_c l_c - a sum_c n_c l_c + K (a - f) sum_c n_c) / (s + a min_c n_c)

and the same with f for a and K = 0,
blocks, rounded down. K is possible only where sum_i X_i(K) >= L; then some rank holds at least
y = ceil(max_j (L - sum of the j smallest X) / (p - j)) blocks. If the fullest rank holds x >= y blocks, then, min(K, .)
being concave, all ranks together recompute at least L min(K, x) / x blocks (for several chunks the largest chunk takes
the place of x), so a micro-batch takes the busiest rank at least

    V = min over K and x of max((S + r L min(K, x) / x) / p,  x t + r min(K, x)).

K per stage. Blocks that fit without recompute: c_i = M / (s + n_i a). Each further one needs
(s + n_i a) / (n_i (a - f)) recomputed blocks, at most until all are: M / (s + n_i f). Filling the cheapest ranks first
gives the least number, a fractional knapsack. n_i is the largest count that every chunk of some vector reaches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cost_models.chunk import Array, Index
from cost_models.mesh import SCHEDULES, Int, MeshBatch
from cost_models.schedule import in_flight, stage_table
from cost_models.schedule.names import ScheduleName
from planner.search.windows import stage_window, takes_every_cut

LIGHTEST_BYTES = 1e-3
"""Weight of a block that weighs nothing, where bytes are divided by it."""

TRIED_SIZES = 4
"""Sizes of the fullest rank that are tried one by one before the bound takes its simple form."""


@dataclass(frozen=True, slots=True)
class MeshSums:
    """Sums over the layers of each mesh, arrays (B,); the last seven describe the most frequent kind of block."""

    total_s: Array
    block_min_s: Array
    forward_min_s: Array
    tail_s: Array
    reduction_s: Array  # what all ranks together show of their gradient reduction, at least
    send_plain_s: Array
    send_interleaved_s: Array
    fixed_s: Array
    room_bytes: Array  # M: the limit less constants and the least transient of a block
    first_bytes: Array  # embedding, at rest and once saved
    last_bytes: Array  # head, at rest and once saved, and by how much its rank's least transient differs
    short_bytes: Array  # bound on the fullest rank less the limit; above 0 nothing fits
    static_bytes: Array
    saved_bytes: Array
    full_saved_bytes: Array
    full_s: Array
    block_s: Array
    num_blocks: Array
    spare_share: Array  # most that a pair of passes spares of any row's forward and backward

    def take(self, index: Int) -> "MeshSums":
        """Chosen meshes."""
        return MeshSums(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def joined_sums(parts: list[MeshSums]) -> MeshSums:
    """Sums of several batches one after the other."""
    names = MeshSums.__dataclass_fields__
    return MeshSums(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def least_sums(sums: MeshSums, first: Int) -> MeshSums:
    """Sums of a mesh at least as good as each of those from every place in `first` to the next."""
    least = {name: np.minimum.reduceat(getattr(sums, name), first) for name in MeshSums.__dataclass_fields__}
    most = {name: np.maximum.reduceat(getattr(sums, name), first) for name in ("room_bytes", "spare_share")}
    return MeshSums(**least | most)


class Blocks(NamedTuple):
    """Blocks of a model, and the places of those that are not of the most frequent kind."""

    total: int
    others: tuple[int, ...]

    def of_frequent_kind(self, least: Index) -> Index:
        """Blocks of the frequent kind that every stage holds at least, when stages hold `least` blocks of any kind.

        Stage g lies within [blocks that the stages before it hold at least, L - the same of the stages behind it).
        """
        before = np.cumsum(least) - least
        behind = self.total - (least.sum() - before - least)
        places = np.asarray(self.others, dtype=np.int64)
        within = np.searchsorted(places, behind) - np.searchsorted(places, before)
        frequent: Index = np.maximum(least - within, 0)
        return frequent


@dataclass(frozen=True, slots=True)
class Forced:
    """R and V of the mesh bounds: seconds per micro-batch, infinite where memory rules the mesh out; arrays (B,)."""

    recompute_s: Array
    busiest_s: Array


@dataclass(frozen=True, slots=True)
class FullRecompute:
    """What may be recomputed in full: nothing, one number of blocks for all stages, or one per stage."""

    allowed: bool
    uniform: bool


@dataclass(frozen=True, slots=True)
class _Point:
    """In-flight counts of one (schedule, p, v, m): per row a rank and one of its vectors."""

    rank: Int  # (rows,), rising
    held_sum: Array  # sum_c n_c
    held_least: Array  # sum_c n_c l_c
    held_min: Array  # min_c n_c
    blocks_least: Array  # sum_c l_c
    plain: Array  # (p,) n_i
    stage_least: Array  # (p v,) least blocks, of any kind, of every virtual stage
    stage_most: float  # most blocks of a virtual stage
    last_rank: int  # the rank of the last stage


def unforced(meshes: MeshBatch, sums: MeshSums) -> Forced:
    """What holds without looking at memory: no recompute, the busiest rank at least the average one."""
    return Forced(np.zeros(meshes.size), sums.total_s / meshes.pp)


def forced(
    meshes: MeshBatch,
    sums: MeshSums,
    global_batch: int,
    blocks: Blocks,
    full: FullRecompute,
    late: Callable[[], bool] = lambda: False,
) -> Forced:
    """R and V of every mesh; once it is late, what holds without looking."""
    recompute, busiest = np.zeros(meshes.size), np.zeros(meshes.size)
    micro = meshes.micro_batches(global_batch)
    points = np.stack([meshes.schedule, meshes.pp, meshes.vpp, np.minimum(micro, 4 * meshes.pp * meshes.vpp)])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    for index, (schedule, pp, vpp, m) in enumerate(unique.T.tolist()):
        here = np.flatnonzero(inverse.reshape(-1) == index)
        if late():
            busiest[here] = sums.total_s[here] / pp
            continue
        point = _point(schedule, pp, vpp, m, blocks)
        # Declared cuts are tried under one K whatever the engine takes.
        one = full.uniform or not takes_every_cut(SCHEDULES[schedule], vpp, blocks.total)
        found = (
            _one_number(sums.take(here), point, full, late)
            if one
            else _per_stage(sums.take(here), point, full)
        )
        recompute[here], busiest[here] = found.recompute_s, found.busiest_s
    return Forced(recompute, busiest)


@lru_cache(maxsize=4096)
def _point(schedule: int, pp: int, vpp: int, m: int, blocks: Blocks) -> _Point:
    """In-flight counts (fewer micro-batches hold less, so m may be cut) and least sizes of one point."""
    name = SCHEDULES[schedule]
    if name is ScheduleName.INTERLEAVED:
        m = max(m // pp * pp, pp)
    vectors = waiting_vectors(name, pp, vpp, m)
    whole, most = stage_window(blocks.total, pp * vpp, every_cut=takes_every_cut(name, vpp, blocks.total))
    least = blocks.of_frequent_kind(whole)[stage_table(name, pp, vpp)]
    rows = [
        (rank, np.asarray(n, dtype=float), least[rank]) for rank, found in enumerate(vectors) for n in found
    ]
    return _Point(
        np.asarray([rank for rank, _, _ in rows]),
        np.asarray([n.sum() for _, n, _ in rows]),
        np.asarray([n @ low for _, n, low in rows]),
        np.asarray([n.min() for _, n, _ in rows]),
        np.asarray([float(low.sum()) for _, _, low in rows]),
        np.asarray([max(min(n) for n in found) for found in vectors], dtype=float),
        whole.astype(float),
        float(most.max()),
        int(np.argwhere(stage_table(name, pp, vpp) == pp * vpp - 1)[0, 0]),
    )


def held_at_least(name: ScheduleName, pp: int, m: int) -> Array:
    """Micro-batches that every rank of one chunk holds at its fullest, (p,), at least one."""
    vectors = waiting_vectors(name, pp, 1, m)
    return np.asarray([max(max(n) for n in found) for found in vectors], dtype=float).clip(min=1.0)


def waiting_vectors(name: ScheduleName, pp: int, vpp: int, m: int) -> list[set[tuple[int, ...]]]:
    """Of every rank, counts of micro-batches that wait for their backward: all that is sure to be held in full.

    What is kept halfway through a split backward may be less than what was saved, so bounds leave it out.
    """
    return [{vector[:vpp] for vector in found} for found in in_flight(name, pp, vpp, m).split_vectors]


def _one_number(sums: MeshSums, point: _Point, full: FullRecompute, late: Callable[[], bool]) -> Forced:
    """The best K for all stages; loops over K, vectorised over the meshes that a larger K could still make better."""
    size = sums.total_s.size
    least_s, best_s = (np.full(size, np.inf) for _ in range(2))
    most = int(min(sums.num_blocks.max(initial=0.0), point.stage_most)) if full.allowed else 0
    (left,) = np.nonzero(_capacity(sums, point, most).sum(1) >= sums.num_blocks - 1e-9)
    for number in range(most + 1):
        some = sums.take(left)
        even = np.ceil(some.num_blocks / point.plain.shape[0] - 1e-9)
        better = np.flatnonzero(_least_value(some, point, number, even) < best_s[left])
        left, some = left[better], some.take(better)
        if not left.size:
            break
        if late():
            return Forced(np.zeros(size), sums.total_s / point.plain.shape[0])
        held, blocks = _capacity(some, point, number), some.num_blocks
        possible = held.sum(1) >= blocks - 1e-9
        value = np.where(possible, _least_value(some, point, number, _busiest_blocks(held, blocks)), np.inf)
        best_s[left] = np.minimum(best_s[left], value)
        floor_s = _recomputed(some, point, number, blocks) * some.full_s
        least_s[left] = np.minimum(least_s[left], np.where(possible, floor_s, np.inf))
    return Forced(least_s, best_s)


def _least_value(sums: MeshSums, point: _Point, number: int, fullest: Array) -> Array:
    """Least over x >= fullest of max((S + r L min(K, x) / x) / p, x t + r min(K, x)), shape (B,).

    The second term grows with x, so a few x are tried and the next one's second term bounds all others.
    """
    pp = point.plain.shape[0]
    found = np.full(fullest.shape, np.inf)
    for more in range(TRIED_SIZES + 1):
        size = np.maximum(fullest + more, 1.0)
        busy_s = size * sums.block_s + np.minimum(number, size) * sums.full_s
        mean_s = (sums.total_s + _recomputed(sums, point, number, size) * sums.full_s) / pp
        found = np.minimum(found, busy_s if more == TRIED_SIZES else np.maximum(mean_s, busy_s))
    return found


def _recomputed(sums: MeshSums, point: _Point, number: int, size: Array) -> Array:
    """Blocks recomputed at least by all ranks together when none holds more than `size` blocks, shape (B,)."""
    if point.stage_least.size > point.plain.shape[0]:
        least = float(np.minimum(number, point.stage_least).sum())
        return np.maximum(least, sums.num_blocks * min(number, point.stage_most) / point.stage_most)
    return sums.num_blocks * np.minimum(number, size) / size


def _capacity(sums: MeshSums, point: _Point, number: int) -> Array:
    """X_i(K): most blocks of every rank, shape (B, p)."""
    static = sums.static_bytes[:, None]
    pp = point.plain.shape[0]
    room = sums.room_bytes[:, None] - sums.first_bytes[:, None] * (point.rank == 0)
    room = room - sums.last_bytes[:, None] * (point.rank == point.last_rank)
    saved = sums.saved_bytes[:, None]
    least = np.minimum(saved, sums.full_saved_bytes[:, None])
    left = room - static * point.blocks_least
    # A block may weigh nothing on the device, where all of it rests on the host: then any number fits.
    each, lean_each = (np.maximum(static + of * point.held_min, LIGHTEST_BYTES) for of in (saved, least))
    linear = (left - saved * point.held_least + number * (saved - least) * point.held_sum) / each
    lean = (left - least * point.held_least) / lean_each
    by_vector = point.blocks_least + np.minimum(linear, lean)
    whole = np.floor(by_vector + 1e-6)
    held: Array = np.minimum.reduceat(whole, np.searchsorted(point.rank, np.arange(pp)), axis=1)
    return np.maximum(held, 0.0)


def _busiest_blocks(held: Array, blocks: Array) -> Array:
    """y: blocks of the fullest rank at least, shape (B,)."""
    rising = np.sort(held, axis=1)
    before = np.cumsum(rising, axis=1) - rising
    ranks = np.arange(held.shape[1], 0, -1)
    largest: Array = np.ceil(((blocks[:, None] - before) / ranks).max(1) - 1e-6)
    return largest


def _per_stage(sums: MeshSums, point: _Point, full: FullRecompute) -> Forced:
    """The fractional knapsack of the module's text; shapes (B, p)."""
    count = np.maximum(point.plain, 1.0)[None, :]
    static, saved, least = (x[:, None] for x in (sums.static_bytes, sums.saved_bytes, sums.full_saved_bytes))
    room = np.maximum(sums.room_bytes, 0.0)[:, None]
    free = room / np.maximum(static + count * saved, LIGHTEST_BYTES)
    missing = sums.num_blocks - free.sum(1)
    busiest = sums.total_s / point.plain.shape[0]
    if not full.allowed:
        return Forced(np.where(missing > 1e-9, np.inf, 0.0), busiest)
    spare = np.maximum(saved - least, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.where(spare > 0.0, (static + count * saved) / (count * spare), np.inf)
    extra = np.maximum(
        room / np.maximum(static + count * np.minimum(saved, least), LIGHTEST_BYTES) - free, 0.0
    )
    order = np.argsort(price, axis=1)
    price, extra = np.take_along_axis(price, order, 1), np.take_along_axis(extra, order, 1)
    before = np.cumsum(extra, axis=1) - extra
    taken = np.clip(missing[:, None] - before, 0.0, extra)
    layers = np.where(taken > 0.0, taken * np.where(np.isfinite(price), price, 0.0), 0.0).sum(1)
    return Forced(np.where(missing > extra.sum(1) + 1e-9, np.inf, layers * sums.full_s), busiest)
