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
from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.mesh import Bool, Int, MeshKey
from cost_models.mesh_costs import batch_rules, straggler_factor
from cost_models.pricing import Pricer
from cost_models.row_work import RowWork
from cost_models.rows import model_rows
from cost_models.states import RowStates
from planner.families import Families
from planner.search.bounding.cut_bounds import RowTimes
from planner.search.bounding.memory_bounds import MeshSums
from planner.search.bounding.mesh_bounds import CHUNK, batch_sums
from planner.search.bounding.pipe_bounds import Cut, Few, LeftStates, PipeBounds
from planner.search.bounding.state_block import Parts, RowBytes, StateBlock, fewest_replicas, state_points
from planner.search.bounding.work_cache import WorkCache, joined
from planner.search.mesh_table import all_recomputed
from planner.search.space.bundles import Bundles

EXCHANGE = TIME_CAUSES.index("ep_communication")

FIRST_STATES = 32_768
MOST_STATES = 262_144
"""States that are priced together: few at first, so that a good step is known early, then more at a time."""

MANY_STATES = 8_192
"""States from which on those with the fewest replicas are held against memory before the others."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes in rising order of their bounds; arrays (n,)."""

    kind: Int
    row: Int
    bound_s: Array

    def take(self, where: Int | Bool | slice) -> "Nodes":
        """Some of them."""
        return Nodes(self.kind[where], self.row[where], self.bound_s[where])


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
        self._plain: dict[MeshKey, tuple[Int, Array]] = {}  # rows and bounds of kinds without scopes
        self.work = WorkCache(pricer, families.rows)
        self._parts = Parts(pricer, families, self._counts, state_points(pricer, families.rows))

    # ------------------------------------------------------------------ nodes

    def nodes(self, cutoff_s: float, cut: Cut, kinds: list[int] | None = None) -> Nodes:
        """Nodes below the cut-off, the lowest first; the others are counted in `cut`."""
        families = self._families
        found: list[Nodes] = []
        for kind in range(len(families.options.kinds)) if kinds is None else kinds:
            rows = np.flatnonzero(families.kinds_legal[:, kind])
            key = families.options.kinds[kind]
            if (known := self._plain.get(replace(key, scopes=()))) is None:
                bounds = np.zeros(rows.size)
            else:  # what holds without scopes holds with them
                bounds = known[1][np.searchsorted(known[0], rows)]
                left = self._cut_nodes(cut, rows, bounds, cutoff_s)
                rows, bounds = rows[left], bounds[left]
            if known is None or (key.scopes and not self._late()):
                bounds = np.maximum(bounds, self._node_bounds(key, rows))
                if not key.scopes:
                    self._plain[key] = (rows, bounds)
                left = self._cut_nodes(cut, rows, bounds, cutoff_s)
                rows, bounds = rows[left], bounds[left]
            found.append(Nodes(np.full(rows.size, kind), rows, bounds))
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

    def bundles(self, nodes: Nodes, cutoff_s: float, cut: Cut, few: Few | None = None) -> Bundles:
        """All meshes of some nodes whose bounds are below the cut-off, in bundles, the lowest first.

        Of all states, or a `few`; raises Late when time runs out.
        """
        left = {True: LeftStates(), False: LeftStates()}
        options = self._families.options
        for here in self._alike(nodes):
            for offload in dict.fromkeys(state.offload for state in options.states):
                tried = range(len(options.states)) if few is None else few.states
                states = [i for i in tried if options.states[i].offload == offload]
                self._price_states(here, states, cutoff_s, cut, left)
        pipes = PipeBounds(self._pricer, self._families, self._rows, self._late)
        found = [
            pipes.bundles(part, free, cutoff_s, cut)
            if few is None
            else pipes.lowest(part, free, cutoff_s, few)
            for free, part in left.items()
            if part.row
        ]
        return Bundles.joined(found).rising()

    def _alike(self, nodes: Nodes) -> list[Nodes]:
        """Nodes by how their kinds keep states: scopes and the kind of context parallelism do not matter to them."""
        groups: dict[object, list[int]] = {}
        for kind in np.unique(nodes.kind).tolist():
            key = self._families.options.kinds[kind]
            style = replace(self._pricer.style(key.cp_kind), cp_kind="")
            groups.setdefault((key.order, style), []).append(kind)
        return [nodes.take(np.isin(nodes.kind, kinds)) for kinds in groups.values()]

    def _price_states(
        self, nodes: Nodes, states: list[int], cutoff_s: float, cut: Cut, left: dict[bool, LeftStates]
    ) -> None:
        """States of nodes that keep them alike: the fewest replicas first, then the others of nodes with room.

        More replicas keep larger shards, so where the fewest lack memory all do (`StateBlock.short`).
        """
        families = self._families
        legal = families.states_legal[nodes.row][:, states]
        groups = fewest_replicas(families, states) if legal.sum() > MANY_STATES else [range(len(states))]
        zero = np.asarray([families.options.states[state].zero for state in states])
        short = np.zeros(legal.shape, dtype=bool)
        for group in groups:
            here = np.zeros_like(legal)
            here[:, group] = legal[:, group]
            cut.out_of_memory += int((here & short).sum(1) @ families.num_pipes[nodes.row])
            at, column = np.nonzero(here & ~short)
            if not at.size:
                continue
            pairs = (nodes.kind[at], nodes.row[at], np.asarray(states, dtype=np.int64)[column])
            roomy = self._price_pairs(pairs, cutoff_s, cut, left)
            lacks = np.ones(at.size, dtype=bool)
            lacks[roomy] = False
            for index in np.unique(column).tolist():
                mine = at[lacks & (column == index)]
                short[mine] |= zero == zero[index]

    def _price_pairs(
        self, pairs: tuple[Int, Int, Int], cutoff_s: float, cut: Cut, left: dict[bool, LeftStates]
    ) -> Int:
        """Price pairs of a node (kind, row) and a state, keep those that are left, and say which had room at all."""
        families, (kind, row, state) = self._families, pairs
        block = StateBlock.of(self._parts, int(kind[0]), row, state, self._late)
        if block is None:
            raise Late
        asked = self._roomy(block, kind, row, cut)
        free = np.asarray([self._recompute.free_with(key.scopes) for key in families.options.kinds])
        for some in self._chunks(kind, asked):
            if self._late():
                raise Late
            sums, times = self._sums(kind[some], row[some], state[some], block.take(some))
            keep = cut.add(self._state_bounds(row[some], sums), families.num_pipes[row[some]], cutoff_s)
            for is_free, into in left.items():
                these = np.flatnonzero(keep & (free[kind[some]] == is_free))
                if these.size:
                    into.add(pairs, some[these], sums.take(these), times.take(these))
        return asked

    def _chunks(self, kind: Int, asked: Int) -> Iterator[Int]:
        """States whose kinds differ in scopes alone, in the order of their kinds, so many at a time."""
        bare = [replace(key, scopes=()) for key in self._families.options.kinds]
        which = np.asarray([bare.index(key) for key in bare])[kind[asked]]
        for one in np.unique(which).tolist():
            here = asked[which == one]
            for start in range(0, here.size, CHUNK):
                some = here[start : start + CHUNK]
                yield some[np.argsort(kind[some], kind="stable")]

    def _roomy(self, block: StateBlock, kind: Int, row: Int, cut: Cut) -> Int:
        """Places of the states that all ranks together can hold as far as kernels alone tell; counts the others."""
        if self._pricer.engine.shards_by_unit:  # what is saved is then told by states too
            return np.arange(kind.size)
        pp = self._families.rows.pp.astype(float)
        left = np.ones(kind.size, dtype=bool)
        for one in np.unique(kind).tolist():
            (asked,) = np.nonzero(kind == one)
            rows, which = np.unique(row[asked], return_inverse=True)
            work = self.work.work(self._families.options.kinds[one], rows)
            least = RowBytes.of(work, self._counts).take(which.reshape(-1))
            left[asked] = ~block.short(least, asked, pp[row[asked]])
        cut.out_of_memory += int(self._families.num_pipes[row[~left]].sum())
        return np.flatnonzero(left)

    def _sums(self, kind: Int, row: Int, state: Int, states: RowStates) -> tuple[MeshSums, RowTimes]:
        """Sums and times of states whose kinds differ in scopes alone; `kind` is sorted."""
        pipes = np.zeros_like(row)
        batch = self._families.batch(int(kind[0]), row, state, pipes)
        kinds = self._families.options.kinds
        works = [self.work.work(kinds[int(one)], row[kind == one]) for one in np.unique(kind)]
        priced = self._pricer.price(batch, joined(works), states)
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


class Late(Exception):
    """Time ran out before all meshes of a block were bounded."""
