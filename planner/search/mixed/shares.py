"""Several chunks per rank on several pools: the declared cuts, by how many blocks each pool holds.

For every division X of the blocks over the pools (at least one for each of a pool's virtual stages), a pool's blocks go
to its virtual stages in sizes q and q + 1, the longer ones in a row from its first stage on or up to its last, with up
to two blocks fewer on the very first and on the very last stage of the pipeline, for all one K. Divisions are looked at
in the order of what their busiest rank takes at least; those at the best step or above are not cut at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from cost_models.chunk import Array, Index
from cost_models.mixed_costs import MixedCosts
from cost_models.schedule import stage_table
from planner.search.mixed.bounds import divisions
from planner.search.problem import InnerSolution, chunks_of, fits_rank, of_choices, price_many, steps_of

MOST_FEWER = 2
"""Blocks by which the first and the last virtual stage may be shorter than their share."""

TOGETHER = 24
"""Divisions whose cuts are priced in one go."""

Late = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Line:
    """Virtual stages of every pool in global order."""

    stages_of_pool: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, mesh: MixedCosts) -> "Line":
        """The virtual stages of a mesh by pool."""
        where = stage_table(mesh.schedule, mesh.pp, mesh.vpp)
        found: list[list[int]] = [[] for _ in range(max(mesh.pool_of_rank) + 1)]
        for rank, pool in enumerate(mesh.pool_of_rank):
            found[pool] += where[rank].tolist()
        return cls(tuple(tuple(sorted(stages)) for stages in found))

    @property
    def count(self) -> int:
        """All virtual stages."""
        return sum(len(stages) for stages in self.stages_of_pool)


def best_shared(mesh: MixedCosts, cutoff_s: float, late: Late) -> tuple[float, InnerSolution | None]:
    """Lower bound on the declared cuts of a mesh under every K, and the best of them if it is below `cutoff_s`."""
    line, num_blocks = Line.of(mesh), mesh.table.num_blocks
    shares = divisions(tuple(len(stages) for stages in line.stages_of_pool), num_blocks)
    busy_s = _least_busy(mesh, line, shares)
    order = np.argsort(busy_s, kind="stable")
    best: InnerSolution | None = None
    bound_s = np.inf
    for start in range(0, len(order), TOGETHER):
        some = order[start : start + TOGETHER]
        reach_s = min(cutoff_s, np.inf if best is None else best.step_s)
        if busy_s[some[0]] >= reach_s or (start > 0 and late()):
            return min(bound_s, float(busy_s[some[0]])), best
        cuts = np.concatenate([cuts_of(line, tuple(shares[index].tolist())) for index in some])
        found_s, found = _best_of(mesh, cuts, reach_s)
        bound_s = min(bound_s, found_s)
        best = found or best
    return bound_s, best


def _least_busy(mesh: MixedCosts, line: Line, divisions: Index) -> Array:
    """Steps of a rank of each pool that holds its share of blocks, the longest of them, (n,)."""
    least = []
    for stages in line.stages_of_pool:
        part = mesh.of_rank(stages[0] % mesh.pp)
        time_s = (part.table.forward_parts_s + part.table.backward_parts_s).sum(0)[1:-1]
        least.append(float(time_s.min()) * mesh.vpp / len(stages))
    busy: Array = steps_of(mesh, mesh.num_micro_batches * (divisions * np.asarray(least)).max(axis=1))
    return busy


@lru_cache(maxsize=8192)
def cuts_of(line: Line, division: tuple[int, ...]) -> Index:
    """All declared cuts of one division, (n, N)."""
    found = set()
    fewer = range(MOST_FEWER + 1)
    for first, last in product(fewer, fewer):
        extra = [0] * len(division)
        extra[0] += first
        extra[-1] += last
        per_pool = [
            list(_even(total + more, stages))
            for total, more, stages in zip(division, extra, line.stages_of_pool, strict=True)
        ]
        for chosen in product(*per_pool):
            cut = [0] * line.count
            for sizes, stages in zip(chosen, line.stages_of_pool, strict=True):
                for size, stage in zip(sizes, stages, strict=True):
                    cut[stage] = size
            cut[0] -= first
            cut[-1] -= last
            if min(cut) >= 1:
                found.add(tuple(cut))
    return np.asarray(sorted(found), dtype=np.int64).reshape(len(found), line.count)


def _even(total: int, stages: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Sizes q and q + 1, the longer ones first or last."""
    base, extra = divmod(total, len(stages))
    longer_first = (base + 1,) * extra + (base,) * (len(stages) - extra)
    yield longer_first
    if extra:
        yield longer_first[::-1]


def _best_of(mesh: MixedCosts, cuts: Index, reach_s: float) -> tuple[float, InnerSolution | None]:
    """Least step of some cuts under every K (a bound, where they cannot be below `reach_s`), and the best below it."""
    best: InnerSolution | None = None
    bound_s = np.inf
    most = int(cuts.max(initial=0)) if mesh.may_recompute else 0
    for number in range(mesh.least_full, most + 1):
        chunks = chunks_of(mesh, cuts, np.minimum(number, cuts))
        busy_s = mesh.num_micro_batches * (chunks.forward_s + chunks.backward_s).sum(1).max(0)
        least_s = steps_of(mesh, busy_s)
        near = least_s < reach_s
        bound_s = min(bound_s, float(least_s[~near].min(initial=np.inf)))
        cuts = cuts[near]
        if not len(cuts):
            break
        fits = fits_rank(mesh, of_choices(chunks, near)).all(axis=0)
        tried = np.flatnonzero(fits)
        if len(tried):
            steps = price_many(mesh, cuts[tried], np.minimum(number, cuts[tried])).step_s
            first = int(np.argmin(steps))
            bound_s = min(bound_s, float(steps[first]))
            if steps[first] < reach_s:
                cut = cuts[tried[first]]
                full = tuple(np.minimum(number, cut).tolist())
                best = InnerSolution(tuple(cut.tolist()), full, float(steps[first]))
                reach_s = best.step_s
            cuts = cuts[~fits]  # a larger K is slower for a cut that fits
    return bound_s, best
