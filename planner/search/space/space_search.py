"""The search over the whole space: bounds of families, then exact inner problems in order of their bounds.

Every mesh ends in one of four ways: out of memory (a memory lower bound exceeds the limit), bounded (its lower bound is
within the gap of the best step or above), solved (its own optimum is known to the gap), or open (time ran out). The
lower bound of the space is the least of the best step and of every mesh's bound at the moment it was put away.
"""

from collections.abc import Iterator

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import MeshBatch
from cost_models.rows import model_rows
from planner.families import Families
from planner.search.bounding.memory_bounds import FullRecompute, forced
from planner.search.bounding.mesh_bounds import frequent_blocks, mesh_sums, step_bounds
from planner.search.bounding.pipe_bounds import Cut, Few
from planner.search.mesh_table import all_recomputed
from planner.search.space.bundle_queue import BundleQueue
from planner.search.space.bundles import Bundle, BundlePricer, Bundles
from planner.search.space.frontier import Frontier, Late, Nodes, Recomputes
from planner.search.space.next_best import MORE_PLANS_WALKED, NextBest
from planner.search.space.opening import open_mesh
from planner.search.space.picks import (
    beside,
    beside_scopes,
    first_of_each,
    own_states,
    plain_kinds,
    plain_states,
)
from planner.search.space.search_state import Found, RecomputeRule, SearchLimits, SearchState
from planner.search.space.walk import PRICED_TOGETHER, Walk

BESIDE_WITHIN = 1.004
MOST_BESIDE = 16
"""Pipes beside the best plan's that are opened, and how much slower they may be to be improved in small steps."""

REPORTED_EVERY = 32
"""Bundles between two reports of progress."""

DIVED_AMONG = (1_500, 100_000)
DIVED = 8
DIVED_VARIED = 64
DIVED_KINDS = 8
DIVED_BELOW = 0.97
DIVED_AROUND = 512
DESCENTS = 4
DESCENT_BELOW = 0.995
PROBED = 4
PROBED_BELOW = 0.98
"""Meshes that are opened before the space is bounded (of so many of each kind; many that differ, if none of these fits)
and after each block of a frontier, and how far below the best step their bounds must be."""

__all__ = ["Found", "RecomputeRule", "SearchLimits", "SearchState", "SpaceSearch"]


class SpaceSearch(NextBest):
    """Searches legal meshes for the least step."""

    def run(self, batches: tuple[MeshBatch, ...]) -> SearchState:
        """Search meshes that are listed, until the gap is closed or time is up."""
        walk = Walk.of(batches, [self._bounds(batch) for batch in batches])
        self._total = sum(batch.size for batch in batches)
        self.state.out_of_memory += walk.num_impossible
        reached = self._open_in_order(walk)
        self._settle()
        self._polish()
        if self.state.best is not None:
            last = min(walk.order.size, reached + MORE_PLANS_WALKED)
            behind = (
                walk.block(first, self._pricer, self._recompute.apply)
                for first in range(reached, last, PRICED_TOGETHER)
            )
            self._more_plans(walked for block in behind for walked in block)
        return self.state

    def run_families(self, families: Families, *, only_best: bool = False) -> SearchState:
        """The same for families, of which only meshes that could win are listed.

        `only_best`: nothing is looked for behind a plan known before.
        """
        self._total = families.size
        frontier = self._frontier(families)
        pricer = BundlePricer(self._pricer, families, frontier.work, self._recompute.apply)
        self._dive(frontier, pricer)
        cut = Cut()
        nodes = frontier.nodes(self._cutoff(), cut)
        self._put_cut_away(cut)
        self._open_bundles(self._expand(frontier, pricer, nodes), pricer)
        self._settle()
        if only_best and not self.state.found:
            return self.state
        self._open_beside(pricer)
        if self.state.best is not None and self._limits.wanted:
            self._next_best(frontier, pricer)
        self._polish()
        if self.state.best is not None and len(self.state.distinct()) <= self._limits.wanted:
            behind = self._behind(frontier, pricer)
            self._more_plans(member for bundle in behind for member in bundle.members)
        return self.state

    def least_bound_s(self, batches: tuple[MeshBatch, ...]) -> float:
        """A step time that no layout beats, without opening a mesh; infinite where none fits in memory."""
        return float(min((self._bounds(batch).min(initial=np.inf) for batch in batches), default=np.inf))

    def least_of_families_s(self, families: Families) -> float:
        """The same for families: the lowest nodes are bounded until the next one's bound is above what was found.

        When time runs out, the nodes not looked into count with their own, lower bound.
        """
        frontier, least_s = self._frontier(families), np.inf
        nodes = frontier.nodes(np.inf, Cut())
        for start, stop in frontier.blocks(nodes):
            if nodes.bound_s[start] >= least_s:
                break
            try:
                found = frontier.bundles(nodes.take(slice(start, stop)), least_s, Cut())
            except Late:
                return min(least_s, float(nodes.bound_s[start]))
            least_s = min(least_s, float(found.bound_s.min(initial=np.inf)))
        return least_s

    # ---------------------------------------------------------------- families

    def _frontier(self, families: Families) -> Frontier:
        rule = self._recompute
        return Frontier(self._pricer, families, Recomputes(rule.everywhere, rule.free_with), self._late)

    def _dive(self, frontier: Frontier, pricer: BundlePricer) -> None:
        """A good step early: the lowest meshes of plain kinds and states are opened, and not counted yet."""
        try:
            for most in DIVED_AMONG:
                for kind in plain_kinds(pricer.families)[:DIVED_KINDS]:
                    nodes = frontier.nodes(self._dive_below(), Cut(), [kind])
                    few = Few(plain_states(pricer.families), most, 2 * DIVED)
                    found = frontier.bundles(nodes, self._dive_below(), Cut(), few)
                    self._open_lowest(pricer.block(found, DIVED))
                    if self.state.best is None:
                        varied = first_of_each(pricer.families, found)
                        self._open_lowest(pricer.block(varied, DIVED_VARIED))
                if self.state.best is not None:
                    self._descend(frontier, pricer)
                    return
        except Late:
            return

    def _descend(self, frontier: Frontier, pricer: BundlePricer) -> None:
        """From the best mesh to better ones around it, under its own scopes in any order, until none is found."""
        families = pricer.families
        for _ in range(DESCENTS):
            if self.state.best is None:
                return
            strategy, before_s = self.state.best.strategy, self.state.best_s
            few = Few(own_states(families, strategy), DIVED_AROUND, DIVED)
            found = frontier.bundles(beside_scopes(families, strategy), before_s * DESCENT_BELOW, Cut(), few)
            self._open_lowest(pricer.block(found, DIVED), DESCENT_BELOW)
            if self.state.best_s >= before_s * DESCENT_BELOW:
                return

    def _dive_below(self) -> float:
        return self.state.best_s * DIVED_BELOW

    def _open_lowest(self, bundles: Iterator[Bundle], below: float = DIVED_BELOW) -> None:
        """Open one member of each, the likeliest, for the steps that they give."""
        for bundle in bundles:
            if self._late() or bundle.bound_s >= self.state.best_s * below:
                return
            walked = self._likeliest(bundle)
            solution = self._opened(walked, self.state.best_s).solution
            if solution is not None:
                self._offer(walked, solution)

    def _expand(self, frontier: Frontier, pricer: BundlePricer, nodes: Nodes) -> Bundles:
        """Nodes to bundles, block by block; what cannot win is put away, a few that could are opened at once."""
        pool: list[Bundles] = []
        least_s = np.inf
        for start, stop in frontier.blocks(nodes):
            cutoff_s, cut = self._cutoff(), Cut()
            rest = nodes.take(slice(start, None))
            if rest.bound_s[0] >= cutoff_s or self._late():
                self._put_nodes_away(frontier, rest)
                break
            try:
                found = frontier.bundles(nodes.take(slice(start, stop)), cutoff_s, cut)
            except Late:
                self._put_nodes_away(frontier, rest)
                break
            self._put_cut_away(cut)
            looked = 0
            for bundle in pricer.block(found, PROBED):
                if bundle.bound_s >= self.state.best_s * PROBED_BELOW or self._late():
                    break
                self._look_together(bundle)
                looked += 1
            pool.append(found.take(np.arange(looked, found.size)))
            least_s = min(least_s, float(pool[-1].bound_s.min(initial=np.inf)))
            ahead_s = float(nodes.bound_s[stop]) if stop < nodes.row.size else np.inf
            self._report("bounds", min(ahead_s, least_s, self._least_waiting_s()))
        return Bundles.joined(pool).rising()

    def _open_bundles(self, bundles: Bundles, pricer: BundlePricer) -> None:
        """Open bundles by rising bound; those behind the best step are put away by their bounds.

        A bound is looked up again among the known paths before a bundle is opened, so that those which look good for
        want of a path do not come before those which are.
        """
        queue = BundleQueue(bundles, pricer)
        opened = 0
        while queue.least_s < self.state.best_s and not self._late():
            if (bundle := queue.pop()) is not None:
                bounds = self._path_bounds(bundle)
                if float(bounds.min()) > max(queue.least_s, bundle.bound_s):
                    queue.push(bundle.take(np.arange(len(bundle.members)), bounds))
                    continue
                self._look_together(bundle)
                opened += 1
                if opened % REPORTED_EVERY == 0:
                    self._report("bounds", min(queue.least_s, self._least_waiting_s()))
        self._left, self._near = queue.unpriced(MORE_PLANS_WALKED), queue.priced()
        self._put_rest_away(*queue.rest())

    def _look_together(self, bundle: Bundle) -> None:
        """Look at the ideal of a bundle, and at its members only if the ideal could win.

        Members that known paths of their point bound are put away before, and once more when the ideal taught new ones.
        """
        bundle = self._below(bundle)
        if len(bundle.members) > 1 and not self._late():
            bound_s = open_mesh(bundle.ideal(), self.state.best_s, self._late, self._paths).bound_s
            if np.isinf(bound_s):
                self.state.out_of_memory += len(bundle.members)
                return
            if bound_s >= self._cutoff():
                self.state.bounded += len(bundle.members)
                self.state.put_away(bound_s)
                return
            bundle = self._below(bundle)
        for walked in bundle.members:
            self._look(walked)

    def _below(self, bundle: Bundle) -> Bundle:
        """The bundle without the members that known paths put at the cut-off or above."""
        bounds = self._path_bounds(bundle)
        above = bounds >= self._cutoff()
        for bound_s in bounds[above].tolist():
            self._bounded(bound_s)
        return bundle.take(np.flatnonzero(~above), bounds)

    def _open_beside(self, pricer: BundlePricer) -> None:
        """The best plan's other pipes, and its other kinds of recompute: little steps may lead from them past it."""
        if self.state.best is None:
            return
        near_s = self.state.best_s * BESIDE_WITHIN
        for bundle in pricer.block(beside(pricer.families, self.state.best.strategy), MOST_BESIDE):
            if self._late():
                return
            walked = bundle.members[0]
            solution = self._opened(walked, near_s).solution
            if solution is not None:
                self._offer(walked, solution)

    def _put_cut_away(self, cut: Cut) -> None:
        self.state.out_of_memory += cut.out_of_memory
        self.state.bounded += cut.bounded
        self.state.put_away(cut.least_s)

    def _put_nodes_away(self, frontier: Frontier, nodes: Nodes) -> None:
        """Nodes that are not looked into: bounded where their bound reaches the cut-off, open otherwise."""
        self._put_rest_away(nodes.bound_s, frontier.stands_for(nodes.row))

    # ---------------------------------------------------------------- listed meshes

    def _bounds(self, batch: MeshBatch) -> Array:
        """Lower bounds of a batch, infinite where nothing fits."""
        sums = mesh_sums(self._pricer, batch)
        if self._recompute.everywhere:
            sums = all_recomputed(sums)
        model, job = self._pricer.model, self._pricer.job
        full = FullRecompute(
            self._recompute.free_with(batch.key.scopes), self._pricer.engine.space(model, job).uniform_full
        )
        blocks = frequent_blocks(model_rows(model, job))
        needed = forced(batch, sums, job.global_batch, blocks, full, self._late)
        return step_bounds(self._pricer, batch, sums, needed)

    def _open_in_order(self, walk: Walk) -> int:
        """Walk meshes by rising bound: sharpen the bound, try a greedy choice, keep what is not settled.

        Also says how far the walk went; the meshes behind are put away by their bounds.
        """
        for start in range(0, walk.order.size, PRICED_TOGETHER):
            bounds = walk.bounds_from(start)
            if bounds[0] >= self.state.best_s or self._late():
                self._put_rest_away(bounds, np.ones(bounds.size, dtype=np.int64))
                return start
            for walked in walk.block(start, self._pricer, self._recompute.apply):
                self._look(walked)
            ahead_s = walk.bounds_from(start + PRICED_TOGETHER).min(initial=np.inf)
            self._report("bounds", min(float(ahead_s), self._least_waiting_s()))
        return int(walk.order.size)
