"""States that are left, combined with pipes: bounds of meshes in bundles, the cheap ones first."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import Bool, Int, MeshBatch
from cost_models.mesh_costs import straggler_factor
from cost_models.pricing import Pricer
from cost_models.rows import Rows
from planner.families import Families
from planner.search.bounding.cut_bounds import RowTimes, declared_bounds
from planner.search.bounding.memory_bounds import (
    FullRecompute,
    MeshSums,
    forced,
    joined_sums,
    least_sums,
    unforced,
)
from planner.search.bounding.mesh_bounds import frequent_blocks, step_bounds
from planner.search.bounding.program_bounds import program_bounds
from planner.search.bounding.spread_bounds import spread
from planner.search.space.bundles import Bundles

FIRST_LOOKED = 128
"""Meshes whose memory is looked at in one go where only the lowest few are wanted; then twice as many, and so on."""


@dataclass(slots=True)
class Cut:
    """Meshes put away: how many found no memory, how many were bounded, and the least bound of those."""

    out_of_memory: int = 0
    bounded: int = 0
    least_s: float = np.inf

    def add(self, bounds: Array, stands_for: Int, cutoff_s: float) -> Bool:
        """Count what has an infinite bound or one at the cut-off; which are left."""
        impossible = np.isinf(bounds)
        above = ~impossible & (bounds >= cutoff_s)
        self.out_of_memory += int(stands_for[impossible].sum())
        self.bounded += int(stands_for[above].sum())
        self.least_s = min(self.least_s, float(bounds[above].min(initial=np.inf)))
        left: Bool = ~impossible & ~above
        return left


@dataclass(slots=True)
class LeftStates:
    """States that are left of a block, of kinds with or without scopes: places in the families, and their sums."""

    kind: list[Int] = field(default_factory=list)
    row: list[Int] = field(default_factory=list)
    state: list[Int] = field(default_factory=list)
    sums: list[MeshSums] = field(default_factory=list)
    times: list[RowTimes] = field(default_factory=list)

    def add(self, places: tuple[Int, Int, Int], some: Int, sums: MeshSums, times: RowTimes) -> None:
        """Add some of many states (kind, row, state)."""
        for into, column in zip((self.kind, self.row, self.state), places, strict=True):
            into.append(column[some])
        self.sums.append(sums)
        self.times.append(times)


@dataclass(frozen=True, slots=True)
class Few:
    """Some states alone, the most meshes of them whose memory is looked at, and how many of the lowest are wanted."""

    states: list[int]
    most: int
    wanted: int


@dataclass(frozen=True, slots=True)
class PipeBounds:
    """What turns states into bundles of meshes with bounds."""

    pricer: Pricer
    families: Families
    rows: Rows
    late: Callable[[], bool]

    def bundles(self, states: LeftStates, is_free: bool, cutoff_s: float, cut: Cut) -> Bundles:
        """All meshes below the cut-off; the others are counted in `cut`."""
        meshes = _Meshes.of(self.families, states)
        meshes = self._kept(meshes, self._without_memory(meshes), cutoff_s, cut)
        for of_cuts in (self._declared, self._program):
            meshes = self._kept(meshes, of_cuts(meshes), cutoff_s, cut)
        for of_memory in (self._forced, self._spread):
            meshes = self._kept(meshes, of_memory(meshes, is_free), cutoff_s, cut)
        return meshes.bundles()

    def lowest(self, states: LeftStates, is_free: bool, cutoff_s: float, few: Few) -> Bundles:
        """Meshes among the lowest, with bounds that know of memory; nothing is counted.

        Meshes are looked at in the order of a guess, until as many as are wanted may fit.
        """
        meshes, unseen = _Meshes.of(self.families, states), Cut()
        meshes = self._kept(meshes, self._without_memory(meshes), cutoff_s, unseen)
        meshes = meshes.take(np.argsort(self._guess_s(meshes, is_free), kind="stable")[: few.most])
        found, start, size = [meshes.take(np.arange(0))], 0, FIRST_LOOKED
        while start < meshes.size and sum(part.size for part in found) < few.wanted:
            some = meshes.take(np.arange(start, min(start + size, meshes.size)))
            found.append(self._kept(some, self._forced(some, is_free), cutoff_s, unseen))
            start, size = start + size, 2 * size
        meshes = _Meshes.joined(found)
        meshes = meshes.take(np.argsort(meshes.bound_s, kind="stable")[: 4 * few.wanted])
        for of_cuts in (self._declared, self._program):
            meshes = self._kept(meshes, of_cuts(meshes), cutoff_s, unseen)
        return self._kept(meshes, self._spread(meshes, is_free), cutoff_s, unseen).bundles()

    def _guess_s(self, meshes: "_Meshes", is_free: bool) -> Array:
        """Seconds of a step as the first rank's memory suggests: no bound, all blocks recomputed or none."""
        sums, batch = meshes.own_sums, meshes.batch
        micro = batch.micro_batches(self.pricer.job.global_batch).astype(float)
        pp, vpp = batch.pp.astype(float), batch.vpp.astype(float)
        held = np.minimum((2.0 * (pp - 1.0) + (vpp - 1.0) * pp + 1.0) / vpp, micro)
        held = np.where(vpp == 1.0, np.minimum(pp, micro), held)
        room = (sums.room_bytes - sums.first_bytes) * pp / sums.num_blocks - sums.static_bytes
        recompute_s = sums.full_s * sums.num_blocks * micro / pp if is_free else np.inf
        lean_s = np.where(held * sums.full_saved_bytes <= room, meshes.bound_s + recompute_s, np.inf)
        guess: Array = np.where(held * sums.saved_bytes <= room, meshes.bound_s, lean_s)
        return guess

    def _kept(self, meshes: "_Meshes", sharper: Array, cutoff_s: float, cut: Cut) -> "_Meshes":
        """Take the larger bounds and cut by them."""
        meshes = meshes.sharper(sharper)
        return meshes.take(np.flatnonzero(cut.add(meshes.bound_s, meshes.stands_for, cutoff_s)))

    def _without_memory(self, meshes: "_Meshes") -> Array:
        sums = meshes.own_sums
        return step_bounds(self.pricer, meshes.batch, sums, unforced(meshes.batch, sums))

    def _declared(self, meshes: "_Meshes") -> Array:
        shares = meshes.sums.spare_share[meshes.bundle]
        found = declared_bounds(self.pricer, self.rows, meshes.batch, meshes.own_times, shares, self.late)
        return self._whole(meshes, found)

    def _program(self, meshes: "_Meshes") -> Array:
        shares = meshes.sums.spare_share[meshes.bundle]
        found = program_bounds(self.pricer, self.rows, meshes.batch, meshes.own_times, shares, self.late)
        return self._whole(meshes, found)

    def _whole(self, meshes: "_Meshes", pipeline_s: Array) -> Array:
        factor = straggler_factor(self.pricer) * (1.0 - 1e-12)
        whole_s: Array = (pipeline_s + meshes.sums.fixed_s[meshes.bundle]) * factor
        return whole_s

    def _forced(self, meshes: "_Meshes", is_free: bool) -> Array:
        sums, job = meshes.own_sums, self.pricer.job
        full = FullRecompute(is_free, self.pricer.engine.space(self.pricer.model, job).uniform_full)
        needed = forced(meshes.batch, sums, job.global_batch, frequent_blocks(self.rows), full, self.late)
        return step_bounds(self.pricer, meshes.batch, sums, needed)

    def _spread(self, meshes: "_Meshes", is_free: bool) -> Array:
        sums, batch = meshes.own_sums, meshes.batch
        of_all = (sums, meshes.own_times, self.rows, self.pricer.job.global_batch)
        return step_bounds(self.pricer, batch, sums, spread(batch, *of_all, allowed=is_free))


@dataclass(frozen=True, slots=True)
class _Meshes:
    """Bundles of states with a pipe each, their bounds, and the least sums and times of every bundle."""

    kind: Int
    row: Int
    state: Int
    first: Int
    sums: MeshSums
    times: RowTimes
    batch: MeshBatch
    bundle: Int
    pipe: Int
    bound_s: Array

    @classmethod
    def of(cls, families: Families, states: LeftStates) -> "_Meshes":
        """Every bundle with every pipe of its row."""
        kind, row, state = (np.concatenate(x) for x in (states.kind, states.row, states.state))
        order, first = _bundled(families, kind, row, state)
        kind, row, state = kind[order], row[order], state[order]
        sums = least_sums(joined_sums(states.sums).take(order), first[:-1])
        times = RowTimes.joined(states.times).take(order).least(first[:-1])
        bundle, pipe = np.nonzero(families.pipes_legal[row[first[:-1]]])
        batch = families.batch(0, row[first[bundle]], np.zeros_like(bundle), pipe)
        return cls(kind, row, state, first, sums, times, batch, bundle, pipe, np.zeros(bundle.size))

    @classmethod
    def joined(cls, parts: "list[_Meshes]") -> "_Meshes":
        """Some of the same meshes, and some more of them."""
        names = (f.name for f in fields(MeshBatch) if f.name != "key")
        columns = (np.concatenate([getattr(part.batch, name) for part in parts]) for name in names)
        batch = MeshBatch(parts[0].batch.key, *columns)
        rest = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("bundle", "pipe", "bound_s")
        )
        return parts[0]._with(batch, *rest)

    @property
    def size(self) -> int:
        """Bundles with a pipe."""
        return int(self.bundle.size)

    @property
    def stands_for(self) -> Int:
        """Meshes of each, (n,)."""
        number: Int = np.diff(self.first)[self.bundle]
        return number

    @property
    def own_sums(self) -> MeshSums:
        """Sums of each, (n,)."""
        return self.sums.take(self.bundle)

    @property
    def own_times(self) -> RowTimes:
        """Times of each, (rows, n)."""
        return self.times.take(self.bundle)

    def sharper(self, bound_s: Array) -> "_Meshes":
        """The same with the larger bounds."""
        return self._with(self.batch, self.bundle, self.pipe, np.maximum(self.bound_s, bound_s))

    def take(self, where: Int) -> "_Meshes":
        """Some of them."""
        return self._with(self.batch.take(where), self.bundle[where], self.pipe[where], self.bound_s[where])

    def _with(self, batch: MeshBatch, bundle: Int, pipe: Int, bound_s: Array) -> "_Meshes":
        alike = (self.kind, self.row, self.state, self.first, self.sums, self.times)
        return _Meshes(*alike, batch, bundle, pipe, bound_s)

    def bundles(self) -> Bundles:
        """Without the sums."""
        return Bundles(self.kind, self.row, self.state, self.first, self.bundle, self.pipe, self.bound_s)


def _bundled(families: Families, kind: Int, row: Int, state: Int) -> tuple[Int, Int]:
    """Order in which siblings stand together, and where each bundle begins (and the last ends)."""
    keys, states = families.options.kinds, families.options.states
    bare = list(dict.fromkeys((key.scopes, key.cp_kind) for key in keys))
    same_kind = np.asarray([bare.index((key.scopes, key.cp_kind)) for key in keys])[kind]
    kept = list(dict.fromkeys((s.zero, s.offload) for s in states))
    same_state = np.asarray([kept.index((s.zero, s.offload)) for s in states])[state]
    code = (row * len(bare) + same_kind) * len(kept) + same_state
    order = np.argsort(code, kind="stable")
    new = np.flatnonzero(np.diff(code[order], prepend=-1) != 0)
    return order, np.append(new, code.size)
