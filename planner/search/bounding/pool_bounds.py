"""Bounds of many meshes at once from the paths of path_pool.py: every declared cut, memory left out.

A path of (schedule, p, v, m) runs each chunk so and so often, and a chunk of a cut is a number of rows of each kind, so
for every cut the path is a sum over rows. With f, b the times it runs every row forward and backward,

    T >= min over cuts of max over paths of (f F + b B + passes q + hops e + r[end]) + max_i C o

Whole backwards alone: where they are split, more than one term changes its sign.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import Int
from cost_models.mesh_costs import BatchRules, straggler_factor
from cost_models.pricing import PricedRows, Pricer
from cost_models.rows import Rows
from cost_models.schedule import PathCoefficients, stage_table
from planner.search.bounding.cut_bounds import RowTimes, stage_rows
from planner.search.bounding.mesh_bounds import spared
from planner.search.bounding.path_pool import PathPool, Point
from planner.search.windows import takes_every_cut

MOST_PATHS = 48
"""Paths of a point that are tried, the newest."""


@dataclass(frozen=True, slots=True)
class _CutPath:
    """One path on every cut."""

    forward: Array  # (cuts, rows)
    backward: Array
    end: Array  # (cuts, rows) rows on the rank where it ends
    passes: float
    hops: float


@dataclass(slots=True)
class _OfPoint:
    """Cuts of a point: rows of every stage (cuts, N, rows), of the kinds of ranks, and the paths known so far."""

    stages: Array
    kinds: Array  # (kinds, rows) different ranks
    kind: Int  # (cuts, p)
    paths: dict[int, _CutPath] = field(
        default_factory=dict
    )  # by the identity of the coefficients, which the pool keeps


@dataclass(frozen=True, slots=True)
class MemberTimes:
    """Rows (rows, B) of meshes of one point, the share that pairs of passes spare of them, and constants (B,)."""

    rows: RowTimes
    spare_share: Array
    fixed_s: Array

    @classmethod
    def of(cls, priced: PricedRows, rules: BatchRules) -> "MemberTimes":
        """Times of a priced batch."""
        fixed_s = np.broadcast_to(rules.step_fixed_s, (priced.meshes.size,))
        return cls(RowTimes.of(priced, rules), spared(priced, rules) * rules.hiding.paired_share, fixed_s)

    def guess_s(self, counts: Array, pp: int, micro: int) -> Array:
        """Seconds that tell members apart roughly, (B,), no bound: even ranks, one way through the pipeline and back.

        `counts` is how many layers each row stands for.
        """
        rows, hops = self.rows, 2.0 * (pp - 1)
        run_s = counts @ (rows.forward_s + rows.backward_s) * micro
        shown = np.maximum(rows.sync_exposed_min, 1.0 - rows.sync_overlap)
        after_s = counts @ rows.sync_s * shown + counts @ rows.tail_s
        guess: Array = (run_s + after_s) / pp + hops * rows.send_s + self.fixed_s
        return guess

    def take(self, index: Int) -> "MemberTimes":
        """Chosen meshes."""
        return MemberTimes(self.rows.take(index), self.spare_share[index], self.fixed_s[index])

    @classmethod
    def joined(cls, parts: "list[MemberTimes]") -> "MemberTimes":
        """Several batches one after the other."""
        return cls(
            RowTimes.joined([part.rows for part in parts]),
            np.concatenate([part.spare_share for part in parts]),
            np.concatenate([part.fixed_s for part in parts]),
        )


@dataclass(slots=True)
class PoolBounds:
    """The bounds of one search's pool."""

    pricer: Pricer
    rows: Rows
    pool: PathPool
    _points: dict[Point, _OfPoint] = field(default_factory=dict)

    def of(self, point: Point, members: MemberTimes) -> Array:
        """Seconds of a step that no declared cut of each mesh of a point is below, (B,); 0 without a path."""
        known = self.pool.paths.get(point, [])[-MOST_PATHS:]
        name, _, vpp, _ = point
        if takes_every_cut(name, vpp, len(self.rows.blocks)) or name.splits_backward or not known:
            return np.zeros(members.fixed_s.size)
        cuts, overlap, times = self._cuts(point), self.pricer.engine.overlap(), members.rows
        shown_s = times.send_s * (overlap.send_shown if vpp > 1 else overlap.send_shown_plain)
        unspared, longest_s = 1.0 - members.spare_share, np.zeros((len(cuts.stages), shown_s.size))
        for path in (self._path(point, cuts, one) for one in known):
            run_s = path.forward @ times.forward_s + path.backward @ times.backward_s + path.passes * shown_s
            sync_s = path.end @ times.sync_s
            window_s = path.end @ times.backward_s + vpp * shown_s
            after_s = np.maximum(times.sync_exposed_min * sync_s, sync_s - times.sync_overlap * window_s)
            np.maximum(longest_s, run_s * unspared + path.hops * times.send_s + after_s, out=longest_s)
        tail_s = (cuts.kinds @ times.tail_s)[cuts.kind].max(1)
        least_s = (longest_s + tail_s).min(0, initial=np.inf) + members.fixed_s
        step_s: Array = least_s * straggler_factor(self.pricer) * (1.0 - 1e-12)
        return step_s

    def _cuts(self, point: Point) -> _OfPoint:
        if point not in self._points:
            name, pp, vpp, _ = point
            stages = stage_rows(pp * vpp, self.rows.blocks, len(self.rows.rows))
            held = stages[:, stage_table(name, pp, vpp)].sum(2)
            kinds, kind = np.unique(held.reshape(-1, held.shape[-1]), axis=0, return_inverse=True)
            self._points[point] = _OfPoint(stages, kinds, kind.reshape(held.shape[:2]))
        return self._points[point]

    def _path(self, point: Point, cuts: _OfPoint, path: PathCoefficients) -> _CutPath:
        """The path's rows on every cut."""
        if id(path) not in cuts.paths:
            where = stage_table(*point[:3])
            forward, backward = (
                np.einsum("pv,cpvr->cr", count.astype(float), cuts.stages[:, where])
                for count in (path.forward_count, path.backward_count)
            )
            passes = float(path.forward_count.sum() + path.backward_count.sum())
            end = cuts.kinds[cuts.kind[:, path.end_rank]]
            cuts.paths[id(path)] = _CutPath(forward, backward, end, passes, float(path.edge_count))
        return cuts.paths[id(path)]
