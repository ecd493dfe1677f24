"""How many blocks memory lets every rank hold, and how many it makes it recompute; only the most frequent kind counts.

Rank i keeps s bytes at rest for a block and a (f, where recomputed) for every micro-batch in flight. Of the counts n_c
over its v chunks that may stand in flight together, the ones with the largest sum n are taken. Declared chunks of a
rank hold q or q + 1 blocks, two fewer at most on the first and last stage, so x blocks save at least

    a (n x / v - d),  d = n (v - 1) / v + 2 n_e     (d = 0 for v = 1; n_e of a first or last chunk, else 0)

With K blocks of each chunk recomputed the rank saves at most (a - f) K n less, and never less than if all were.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import Int
from cost_models.schedule import stage_table
from cost_models.schedule.names import ScheduleName
from planner.search.bounding.memory_bounds import waiting_vectors
from planner.search.mixed.pool_sums import PoolSums

TINY = 1e-30
MOST_NUMBERS = 24
"""Numbers of recomputed blocks of a chunk that are told apart; larger ones count as this one."""


@dataclass(frozen=True, slots=True)
class Line:
    """A pipeline: schedule, chunks, micro-batches, ranks of every pool."""

    schedule: ScheduleName
    vpp: int
    m: int
    ranks: tuple[int, ...]

    @property
    def pp(self) -> int:
        """All ranks."""
        return sum(self.ranks)

    @property
    def pool_of_rank(self) -> Int:
        """Pool of every rank, (p,)."""
        return np.repeat(np.arange(len(self.ranks)), self.ranks)

    def links_s(self, sums: tuple[PoolSums, ...]) -> Array:
        """Seconds from every rank to the next, the last to the first, (p, B)."""
        place = self.pool_of_rank
        after = np.roll(place, -1)
        inside = np.stack([pool.send_s for pool in sums])
        between = np.stack(
            [np.maximum(sums[k].after_s, sums[(k + 1) % len(sums)].before_s) for k in range(len(sums))]
        )
        links: Array = np.where((place == after)[:, None], inside[place], between[place])
        return links

    def shown_s(self, sums: tuple[PoolSums, ...], links_s: Array) -> Array:
        """Seconds of a micro-batch in which every rank waits for its sends, all its chunks together, (p, B)."""
        share = sums[0].shares[int(self.vpp > 1)]
        own = np.stack([pool.send_s for pool in sums])[self.pool_of_rank]
        after, before = links_s.copy(), np.roll(links_s, 1, axis=0)
        if self.vpp == 1:
            after[-1], before[0] = own[-1], own[0]
        shown: Array = self.vpp * share * (after + before)
        return shown

    def held(self) -> tuple[Array, Array, Array]:
        """Of every rank: sum of the counts in flight, their largest, and d of the module's text; (p, 1) each."""
        p, v = self.pp, self.vpp
        m = min(self.m, 4 * p * v)
        if self.schedule is ScheduleName.INTERLEAVED:
            m = max(m // p * p, p)
        stages = stage_table(self.schedule, p, v)
        rows = []
        for rank, found in enumerate(waiting_vectors(self.schedule, p, v, m)):
            counts = max(found, key=sum)
            edge = sum(n for n, stage in zip(counts, stages[rank], strict=True) if stage in (0, p * v - 1))
            total = float(sum(counts))
            slack = total * (v - 1) / v + 2.0 * edge if v > 1 else 0.0
            rows.append((total, float(max(counts)), slack))
        columns = np.asarray(rows).T[..., None]
        return columns[0], columns[1], columns[2]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Of every rank and mesh, (p, B): seconds of a block and of its recompute, blocks that fit without recompute and at
    most, recomputed blocks for each further one; `room` has the blocks that fit under K = 0.. recomputed in each chunk,
    (numbers, p, B), whole numbers."""

    block_s: Array
    again_s: Array
    free: Array
    most: Array
    price: Array
    room: Array


def ranks_of(sums: tuple[PoolSums, ...], line: Line, kind: int, blocks: float, *, uniform: bool) -> Ranks:
    """Room of every rank for `blocks` blocks of a kind; `uniform` says that K is one number."""
    place = line.pool_of_rank

    def of_ranks(name: str) -> Array:
        chosen: Array = np.stack([getattr(pool, name) for pool in sums])[place]
        return chosen

    total, largest, slack = line.held()
    each = total / line.vpp
    room = of_ranks("room_bytes")
    room[0] -= sums[0].first_bytes
    room[-1] -= sums[-1].last_bytes
    static, saved, lean = (of_ranks(name) for name in ("static_bytes", "saved_bytes", "lean_bytes"))
    whole, least = static + each * saved, static + each * lean
    free = np.clip((room + slack * saved) / np.maximum(whole, TINY), 0.0, blocks)
    most = np.clip((room + slack * lean) / np.maximum(least, TINY), free, blocks)
    spare = largest * (saved - lean)
    price = np.where(spare > 0.0, whole / np.maximum(spare, TINY), 0.0)
    gains = total * (saved - lean) / np.maximum(whole, TINY)
    numbers = np.arange(MOST_NUMBERS + 1 if uniform else 1)[:, None, None]
    under = np.minimum((room + slack * saved) / np.maximum(whole, TINY) + gains * numbers, most)
    under = np.maximum(np.floor((under if uniform else most[None]) + 1e-6), 0.0)
    times = np.stack([pool.kinds_s[kind] for pool in sums])[place]
    return Ranks(times, of_ranks("full_s"), free, most, price, under)
