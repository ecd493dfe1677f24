"""The linear relaxation of the boundaries model, tightened by critical paths (v > 1).

Kelley's cutting planes (J. SIAM 8, 1960): the step is a maximum of linear functions of the durations, so solving the
relaxation, simulating its fractional point and adding the longest path found there converges to the continuous optimum.
Its paths are what the integer model needs most, and its value is a lower bound in itself.

Between two corners (positions where some prefix sum bends) all sums are linear, so a boundary is a mixture of the
corners of its domain: weights w[g, k] >= 0, sum_k w[g, k] = 1, x[g] = sum_k k w[g, k], and a table's value is the
mixture of its values. That is the convex hull of (x[g], all sums at x[g]), hence a relaxation.
"""

from dataclasses import dataclass
from time import monotonic

import numpy as np
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from cost_models.chunk import Array, Index, MeshCosts, exposed_sync_s
from cost_models.schedule import PathCoefficients, PipelineDurations, critical_path
from planner.search.domains import Domains
from planner.search.problem import InnerSolution, num_virtual_stages
from planner.search.rows import Row, RowBuilder, RowKind

# The solver's own tolerance on rows and bounds, 1e-6 relative with room to spare; the bound is lowered by it.
_TOLERANCE = 1e-5
# Paths are added until the simulated point is this close to the relaxation, as a share of the target.
_CLOSE = 2e-4
_MOST_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Relaxed:
    """What the relaxation found: a lower bound (infinite: nothing reaches the target), and the paths added.

    `rounded` is its last solution in whole blocks, at least one each.
    """

    bound_s: float
    paths: tuple[PathCoefficients, ...]
    rounded: tuple[int, ...] | None = None
    nothing_fits: bool = False  # no choice fits in memory, whatever the target


class _Mixture:
    """One boundary (or split) as a mixture of its corners."""

    def __init__(self, solver: pywraplp.Solver, corners: Index) -> None:
        self.corners = corners
        self.weights = [solver.NumVar(0.0, 1.0, "") for _ in corners]
        solver.Add(sum(self.weights) == 1.0)
        self.position = sum(int(k) * w for k, w in zip(corners, self.weights, strict=True))

    def values(self) -> Array:
        """Weights of the last solution."""
        weights = np.array([weight.solution_value() for weight in self.weights])
        clipped: Array = np.clip(weights, 0.0, 1.0)
        return clipped


class Relaxation:
    """Holds the linear program of one subproblem while paths are added to it."""

    def __init__(self, mesh: MeshCosts, domains: Domains, target_s: float) -> None:
        self._mesh, self._domains, self._builder = mesh, domains, RowBuilder(mesh)
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        self._target_s = target_s
        most_s = target_s * (1.0 + _TOLERANCE) if np.isfinite(target_s) else self._solver.infinity()
        self._least = self._solver.NumVar(0.0, most_s, "pipeline and tail")
        self._tail = self._solver.NumVar(0.0, most_s, "longest tail")
        self._bounds = [self._mixture(low, high) for low, high in zip(domains.low, domains.high, strict=True)]
        self._splits = self._split_mixtures() if domains.splits else []
        for left, right in zip(self._bounds, self._bounds[1:], strict=False):
            self._solver.Add(right.position - left.position >= 1)
        for row in self._builder.memory(domains.full):
            self._add(row)
        self._solver.Minimize(self._least)

    def tighten(self, paths: list[PathCoefficients], near: Array, until: float) -> Relaxed:
        """Add `paths`, then the longest path of every solution and of the middle between it and `near`."""
        if not self._fits():
            return Relaxed(np.inf, (), nothing_fits=True)
        added: list[PathCoefficients] = []
        for path in paths:
            self._add_path(path)
        bound_s, rounded = 0.0, None
        for _ in range(_MOST_ROUNDS):
            status = self._solver.Solve()
            if status == pywraplp.Solver.INFEASIBLE:
                return Relaxed(np.inf, tuple(added))
            if status != pywraplp.Solver.OPTIMAL:
                break
            bound_s = max(bound_s, self._least.solution_value() * (1.0 - _TOLERANCE))
            point, rounded = self._point(), self._rounded()
            path, reached_s = self._longest(point)
            if reached_s - bound_s < _CLOSE * self._target_s or monotonic() > until:
                break
            middle, _ = self._longest(0.5 * (point + near))
            for found in (path, middle):
                self._add_path(found)
                added.append(found)
        return Relaxed(bound_s, tuple(added), rounded)

    def point_of(self, solution: InnerSolution) -> Array:
        """Forward, backward, sync seconds of every virtual stage of a cut, shape (3, N)."""
        bounds = np.concatenate(([0], np.cumsum(solution.stages)))
        sums = self._builder.sums
        extra = sums.extra_s[bounds[:-1] + np.asarray(solution.full_layers)] - sums.extra_s[bounds[:-1]]
        seconds = [np.diff(values[bounds]) for values in (sums.forward_s, sums.backward_s, sums.sync_s)]
        seconds[1] = seconds[1] + extra
        return np.stack(seconds)

    def _rounded(self) -> tuple[int, ...]:
        """Sizes of the last solution in whole blocks, at least one each."""
        positions = [float(mixture.values() @ mixture.corners) for mixture in self._bounds]
        bounds = np.maximum.accumulate(np.round(positions).astype(np.int64) - np.arange(len(positions)))
        return tuple((np.diff(np.minimum(bounds, bounds[-1])) + 1).tolist())

    def _fits(self) -> bool:
        """Whether the memory rows alone leave anything; called before rows of time are added."""
        fits = bool(self._solver.Solve() != pywraplp.Solver.INFEASIBLE)
        for row in (*self._builder.tails(), *self._builder.counts(self._target_s)):
            self._add(row)
        return fits

    def _point(self) -> Array:
        """The same of the last solution."""
        sums = self._builder.sums

        def at(mixture: _Mixture, values: Array) -> float:
            return float(mixture.values() @ values[mixture.corners])

        seconds = [
            np.diff([at(mixture, values) for mixture in self._bounds])
            for values in (sums.forward_s, sums.backward_s, sums.sync_s)
        ]
        if self._splits:
            ends = np.array([at(mixture, sums.extra_s) for mixture in self._splits])
            starts = np.array([at(mixture, sums.extra_s) for mixture in self._bounds[:-1]])
            seconds[1] = seconds[1] + np.maximum(ends - starts, 0.0)
        point: Array = np.maximum(np.stack(seconds), 0.0)
        return point

    def _longest(self, point: Array) -> tuple[PathCoefficients, float]:
        """Longest path at a point, and its seconds with the exposed reduction and the longest tail."""
        mesh = self._mesh
        forward_s, backward_s, sync_s = (
            np.ascontiguousarray(values.reshape(mesh.vpp, mesh.pp).T) for values in point
        )
        exposed_s = exposed_sync_s(mesh.rules, sync_s.sum(1), backward_s.sum(1))
        durations = PipelineDurations(forward_s, backward_s, send_s=mesh.rules.send_s)
        shape = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
        path = critical_path(*shape, durations, tail_s=exposed_s)
        end_s = float(path.lower_bound_s(durations)) + float(exposed_s[path.end_rank])
        return path, end_s + float(self._tail.solution_value())

    def _mixture(self, low: int, high: int) -> _Mixture:
        return _Mixture(self._solver, self._builder.sums.corners(low, high))

    def _split_mixtures(self) -> list[_Mixture]:
        """s[g] <= x[g] + K and s[g] <= x[g+1]; recompute less than K is a relaxation unless memory asks for it."""
        splits = []
        for stage in range(num_virtual_stages(self._mesh)):
            split = self._mixture(self._domains.low[stage], self._domains.high[stage + 1])
            left, right = self._bounds[stage], self._bounds[stage + 1]
            self._solver.Add(split.position <= right.position)
            self._solver.Add(split.position >= left.position)
            if self._domains.full is not None:
                self._solver.Add(split.position <= left.position + self._domains.full)
                self._solver.Add(split.position >= left.position + 1)
            splits.append(split)
        return splits

    def _add_path(self, path: PathCoefficients) -> None:
        for row in self._builder.paths(path):
            self._add(row)

    def _add(self, row: Row) -> None:
        """Put a row into the program."""
        slack = _TOLERANCE if row.kind is RowKind.MEMORY else 0.0
        at_most = self._solver.Constraint(-self._solver.infinity(), slack - row.constant)
        if self._splits:
            tables = [
                *zip(self._bounds, row.boundary, strict=True),
                *zip(self._splits, row.split, strict=True),
            ]
        else:
            tables = [*zip(self._bounds, row.without_splits(), strict=True)]
        for mixture, table in tables:
            for weight, value in zip(mixture.weights, table[mixture.corners].tolist(), strict=True):
                at_most.SetCoefficient(weight, value)
        if row.kind is RowKind.PIPELINE:
            at_most.SetCoefficient(self._tail, 1.0)
            at_most.SetCoefficient(self._least, -1.0)
        elif row.kind is RowKind.TAIL:
            at_most.SetCoefficient(self._tail, -1.0)
