"""Families of meshes -> the few meshes whose bound is below the best step. Everything else is counted, not listed.

A mesh is bounded in three strides, each on far fewer meshes than the product of all axes:

    node      row x kind             T >= (m S / p + (p - 1) / 2 f_min) x straggler, S and f_min of kernels and messages
    state     node x state           the same with gathers, tail and constants; out of memory where all ranks together
                                     cannot hold states and the least activations
    mesh      state x pipe           the bounds of mesh_bounds.py and memory_bounds.py

S and f_min of a node with recompute scopes are at least those of the node without, so nodes that are cut without scopes
are not priced with them. What is cut stands for all that would have been made of it (`Families.num_states`,
`num_pipes`). Nodes come in rising order of their bounds, so the best step falls early.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.mesh import Bool, Int, MeshKey
from cost_models.mesh_costs import batch_rules, straggler_factor
from cost_models.pricing import Pricer
from cost_models.row_work import RowWork
from cost_models.rows import model_rows
from planner.families import Families
from planner.search.bundles import Bundles
from planner.search.cut_bounds import RowTimes, declared_bounds
from planner.search.memory_bounds import (
    FullRecompute,
    MeshSums,
    forced,
    joined_sums,
    least_sums,
    unforced,
)
from planner.search.mesh_bounds import CHUNK, batch_sums, frequent_blocks, step_bounds
from planner.search.mesh_table import all_recomputed
from planner.search.program_bounds import program_bounds
from planner.search.spread_bounds import spread
from planner.search.work_cache import WorkCache, joined

EXCHANGE = TIME_CAUSES.index("ep_communication")

FIRST_STATES = 8_192
MOST_STATES = 131_072
"""States that are priced together: few at first, so that a good step is known early, then more at a time."""


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


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes in rising order of their bounds; arrays (n,)."""

    kind: Int
    row: Int
    bound_s: Array

    def take(self, where: Int | Bool | slice) -> "Nodes":
        """Some of them."""
        return Nodes(self.kind[where], self.row[where], self.bound_s[where])


@dataclass(slots=True)
class _States:
    """States that are left of a block, of kinds with or without scopes: places in the families, and their sums."""

    kind: list[Int] = field(default_factory=list)
    row: list[Int] = field(default_factory=list)
    state: list[Int] = field(default_factory=list)
    sums: list[MeshSums] = field(default_factory=list)
    times: list[RowTimes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Few:
    """Some states alone, and the most meshes of them whose memory is looked at: the lowest, nothing is counted."""

    states: list[int]
    most: int


@dataclass(frozen=True, slots=True)
class Recomputes:
    """What the frontier needs to know of the user's recompute: whether every block is recomputed, and K is free."""

    everywhere: bool
    free_with: Callable[[tuple[str, ...]], bool]


class Frontier:
    """The nodes of families, and their way to meshes."""

    def __init__(
        self, pricer: Pricer, families: Families, recompute: Recomputes, late: Callable[[], bool]
    ) -> None:
        self._pricer, self._families, self._recompute, self._late = pricer, families, recompute, late
        self._rows = model_rows(pricer.model, pricer.job)
        self._counts = np.bincount(self._rows.layers, minlength=len(self._rows.rows)).astype(float)
        self._micro = families.rows.micro_batches(pricer.job.global_batch).astype(float)
        self.work = WorkCache(pricer, families.rows)
        self._uniform = pricer.engine.space(pricer.model, pricer.job).uniform_full

    # ------------------------------------------------------------------ nodes

    def nodes(self, cutoff_s: float, cut: Cut, kinds: list[int] | None = None) -> Nodes:
        """Nodes below the cut-off, the lowest first; the others are counted in `cut`."""
        families = self._families
        plain: dict[MeshKey, tuple[Int, Array]] = {}
        found: list[Nodes] = []
        for kind in range(len(families.options.kinds)) if kinds is None else kinds:
            rows = np.flatnonzero(families.kinds_legal[:, kind])
            key = families.options.kinds[kind]
            bare = replace(key, scopes=())
            bounds = np.zeros(rows.size)
            if key.scopes and bare in plain:
                bounds = plain[bare][1][np.searchsorted(plain[bare][0], rows)]
                left = self._cut_nodes(cut, rows, bounds, cutoff_s)
                rows, bounds = rows[left], bounds[left]
            bounds = np.maximum(bounds, self._node_bounds(key, rows))
            if not key.scopes:
                plain[key] = (rows, bounds)
            left = self._cut_nodes(cut, rows, bounds, cutoff_s)
            found.append(Nodes(np.full(int(left.sum()), kind), rows[left], bounds[left]))
        none = Nodes(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
        found = found or [none]
        joined = Nodes(*(np.concatenate([getattr(n, f) for n in found]) for f in ("kind", "row", "bound_s")))
        return joined.take(np.argsort(joined.bound_s, kind="stable"))

    def _cut_nodes(self, cut: Cut, rows: Int, bounds: Array, cutoff_s: float) -> Bool:
        return cut.add(bounds, self.stands_for(rows), cutoff_s)

    def stands_for(self, rows: Int) -> Int:
        """Meshes that a node of each row stands for."""
        number: Int = self._families.num_states[rows] * self._families.num_pipes[rows]
        return number

    def _node_bounds(self, key: MeshKey, rows: Int) -> Array:
        found = [self._bounds_of(key, rows[at : at + CHUNK]) for at in range(0, rows.size, CHUNK)]
        return np.concatenate([*found, np.zeros(0)])

    def _bounds_of(self, key: MeshKey, rows: Int) -> Array:
        work = self.work.work(key, rows)
        total = self._counts @ (work.forward_parts_s + work.backward_parts_s).sum(0)
        forward = work.forward_parts_s.sum(0)[1:-1].min(0)
        pp = self._families.rows.pp[rows].astype(float)
        bound: Array = self._micro[rows] * total / pp + (pp - 1.0) / 2.0 * forward
        return bound * (1.0 - self._spare_share(work)) * straggler_factor(self._pricer) * (1.0 - 1e-12)

    def _spare_share(self, work: RowWork) -> Array:
        """Share that pairs of a forward and a backward may spare at most (cost_models.hiding)."""
        policy = self._pricer.engine.overlap()
        if not policy.pair_schedules:
            return np.zeros(work.saved_bytes.shape[-1])
        forward, backward = work.forward_parts_s, work.backward_parts_s - work.base_parts_s
        spare = sum(
            np.minimum(np.maximum(own[EXCHANGE], 0.0), policy.pair_overlap * beside[0])
            for own, beside in ((forward, backward), (backward, forward))
        )
        share: Array = (spare / np.maximum((forward + work.backward_parts_s).sum(0), 1e-30)).max(0)
        return share

    def blocks(self, nodes: Nodes) -> Iterator[tuple[int, int]]:
        """Places of the nodes a block at a time."""
        states = np.cumsum(self._families.num_states[nodes.row])
        start, most = 0, FIRST_STATES
        while start < nodes.row.size:
            done = int(states[start - 1]) if start else 0
            stop = max(int(np.searchsorted(states, done + most)), start + 1)
            yield start, stop
            start, most = stop, min(2 * most, MOST_STATES)

    # ------------------------------------------------------------------ states and meshes

    def bundles(self, nodes: Nodes, cutoff_s: float, cut: Cut, few: "Few | None" = None) -> Bundles:
        """All meshes of some nodes whose bounds are below the cut-off, in bundles, the lowest first.

        Of all states, or a `few`; raises Late when time runs out.
        """
        left = {True: _States(), False: _States()}
        options = self._families.options
        groups: dict[MeshKey, list[int]] = {}
        for kind in np.unique(nodes.kind).tolist():
            groups.setdefault(replace(options.kinds[kind], scopes=()), []).append(kind)
        offloads = dict.fromkeys(state.offload for state in options.states)
        for kinds in groups.values():
            here = nodes.take(np.isin(nodes.kind, kinds))
            for offload in offloads:
                tried = range(len(options.states)) if few is None else few.states
                states = [i for i in tried if options.states[i].offload == offload]
                self._price_states(here, states, cutoff_s, cut, left)
        most = None if few is None else few.most
        found = [self._pipes(part, free, (cutoff_s, most), cut) for free, part in left.items() if part.row]
        return Bundles.joined(found).rising()

    def _price_states(
        self, nodes: Nodes, states: list[int], cutoff_s: float, cut: Cut, left: dict[bool, _States]
    ) -> None:
        families = self._families
        at, column = np.nonzero(families.states_legal[nodes.row][:, states])
        state = np.asarray(states, dtype=np.int64)[column]
        for start in range(0, at.size, CHUNK):
            some = slice(start, start + CHUNK)
            kind, row, of = nodes.kind[at[some]], nodes.row[at[some]], state[some]
            order = np.argsort(kind, kind="stable")
            kind, row, of = kind[order], row[order], of[order]
            if self._late():
                raise Late
            sums, times = self._sums(kind, row, of)
            keep = cut.add(self._state_bounds(row, sums), families.num_pipes[row], cutoff_s)
            free = np.asarray([self._recompute.free_with(key.scopes) for key in families.options.kinds])
            for is_free, into in left.items():
                these = np.flatnonzero(keep & (free[kind] == is_free))
                if these.size:
                    into.kind.append(kind[these])
                    into.row.append(row[these])
                    into.state.append(of[these])
                    into.sums.append(sums.take(these))
                    into.times.append(times.take(these))

    def _sums(self, kind: Int, row: Int, state: Int) -> tuple[MeshSums, RowTimes]:
        """Sums and times of states whose kinds differ in scopes alone; `kind` is sorted."""
        pipes = np.zeros_like(row)
        batch = self._families.batch(int(kind[0]), row, state, pipes)
        kinds = self._families.options.kinds
        works = [self.work.work(kinds[int(one)], row[kind == one]) for one in np.unique(kind)]
        priced = self._pricer.price(batch, joined(works))
        rules = batch_rules(self._pricer, priced)
        sums = batch_sums(self._pricer, priced, rules)
        times = RowTimes.of(priced, rules)
        return (all_recomputed(sums), times.recomputed()) if self._recompute.everywhere else (sums, times)

    def _state_bounds(self, row: Int, sums: MeshSums) -> Array:
        """Bounds of states whatever the pipe."""
        pp = self._families.rows.pp[row].astype(float)
        average = self._micro[row] * sums.total_s / pp + (pp - 1.0) / 2.0 * sums.forward_min_s
        average += sums.reduction_s / pp
        average = average * (1.0 - sums.spare_share)
        bound = (average + sums.tail_s + sums.fixed_s) * straggler_factor(self._pricer) * (1.0 - 1e-12)
        return np.where(sums.short_bytes <= 0.0, bound, np.inf)

    def _pipes(self, states: _States, is_free: bool, limits: tuple[float, int | None], cut: Cut) -> Bundles:
        """Combine bundles of states with pipes: first the bounds without memory, then those with it."""
        families, job, (cutoff_s, most) = self._families, self._pricer.job, limits
        kind, row, state = (np.concatenate(x) for x in (states.kind, states.row, states.state))
        order, first = self._bundled(kind, row, state)
        kind, row, state = kind[order], row[order], state[order]
        sums = least_sums(joined_sums(states.sums).take(order), first[:-1])
        times = RowTimes.joined(states.times).take(order).least(first[:-1])
        bundle, pipe = np.nonzero(families.pipes_legal[row[first[:-1]]])
        some = families.batch(0, row[first[bundle]], np.zeros_like(bundle), pipe)
        stands_for, factor = np.diff(first), straggler_factor(self._pricer) * (1.0 - 1e-12)
        bounds = np.zeros(bundle.size)

        def sharpen(sharper: Array) -> None:
            """Take the larger bounds and cut by them."""
            nonlocal bundle, pipe, some, bounds
            bounds = np.maximum(bounds, sharper)
            keep = np.flatnonzero(cut.add(bounds, stands_for[bundle], cutoff_s))
            bundle, pipe, some, bounds = bundle[keep], pipe[keep], some.take(keep), bounds[keep]

        of_each = sums.take(bundle)
        sharpen(step_bounds(self._pricer, some, of_each, unforced(some, of_each)))
        for try_cuts in (declared_bounds, program_bounds):
            shares = sums.spare_share[bundle]
            found = try_cuts(self._pricer, self._rows, some, times.take(bundle), shares)
            sharpen((found + sums.fixed_s[bundle]) * factor)
        if most is not None:
            lowest = np.argsort(bounds, kind="stable")[:most]
            bundle, pipe, some, bounds = bundle[lowest], pipe[lowest], some.take(lowest), bounds[lowest]
        of_each, full = sums.take(bundle), FullRecompute(is_free, self._uniform)
        needed = forced(some, of_each, job.global_batch, frequent_blocks(self._rows), full, self._late)
        sharpen(step_bounds(self._pricer, some, of_each, needed))
        of_each = sums.take(bundle)
        spreads = (of_each, times.take(bundle), self._rows, job.global_batch)
        sharpen(step_bounds(self._pricer, some, of_each, spread(some, *spreads, allowed=is_free)))
        return Bundles(kind, row, state, first, bundle, pipe, bounds)

    def _bundled(self, kind: Int, row: Int, state: Int) -> tuple[Int, Int]:
        """Order in which siblings stand together, and where each bundle begins (and the last ends)."""
        keys, states = self._families.options.kinds, self._families.options.states
        bare = list(dict.fromkeys((key.scopes, key.cp_kind) for key in keys))
        same_kind = np.asarray([bare.index((key.scopes, key.cp_kind)) for key in keys])[kind]
        kept = list(dict.fromkeys((s.zero, s.offload) for s in states))
        same_state = np.asarray([kept.index((s.zero, s.offload)) for s in states])[state]
        code = (row * len(bare) + same_kind) * len(kept) + same_state
        order = np.argsort(code, kind="stable")
        new = np.flatnonzero(np.diff(code[order], prepend=-1) != 0)
        return order, np.append(new, code.size)


class Late(Exception):
    """Time ran out before all meshes of a block were bounded."""
