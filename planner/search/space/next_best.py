"""What stands behind the best plan: runners-up that differ from it in a mesh axis, and other degrees."""

import heapq
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from cost_models.chunk import Array
from cost_models.rows import model_rows
from planner.search.bounding.pipe_bounds import Cut, Few
from planner.search.bounding.pool_bounds import PoolBounds
from planner.search.space.bundles import Bundle, BundlePricer, Bundles
from planner.search.space.frontier import Frontier, Late
from planner.search.space.mesh_search import DEGREES, MORE_PLANS_TRIED, MORE_PLANS_WITHIN, MeshSearch
from planner.search.space.picks import around, first_of_degrees, own_states, plain_kinds, plain_states
from planner.search.space.walk import Walked

MORE_PLANS_WALKED = 512
"""Meshes behind the best that are walked for alternatives."""


class NextBest(MeshSearch):
    """A search that also looks behind the best plan."""

    _left = Bundles.none()
    """Bundles that were put away by their bounds, the lowest."""
    _near: Sequence[Bundle] = ()
    """The same, already priced."""

    @cached_property
    def _known_paths(self) -> PoolBounds:
        return PoolBounds(self._pricer, model_rows(self._pricer.model, self._pricer.job), self._paths)

    def _path_bounds(self, bundle: Bundle) -> Array:
        """Bounds of a bundle's members by all that is known."""
        known_s = self._known_paths.of(bundle.point(self._pricer.job), bundle.times)
        bounds: Array = np.maximum(known_s, bundle.bound_s)
        return bounds

    def _likeliest(self, bundle: Bundle) -> Walked:
        """The member that a guess says is the fastest."""
        rows = model_rows(self._pricer.model, self._pricer.job)
        counts = np.bincount(rows.layers, minlength=len(rows.rows)).astype(float)
        _, pp, _, micro = bundle.point(self._pricer.job)
        return bundle.members[int(np.argmin(bundle.times.guess_s(counts, pp, micro)))]

    def _next_best(self, frontier: Frontier, pricer: BundlePricer) -> None:
        """Open meshes around the best plan, and those left behind it, in the order of their bounds until none could be
        among the runners-up that are wanted. Counted, not timed, so that the answer does not depend on the machine."""
        if self.state.best is None or self._late():
            return
        families, tries = pricer.families, MORE_PLANS_TRIED
        few = Few(own_states(families, self.state.best.strategy), MORE_PLANS_WALKED, MORE_PLANS_WALKED)
        try:
            nodes = around(families, self.state.best.strategy)
            found = frontier.bundles(nodes, self._worth_s(), Cut(), few)
        except Late:
            return
        others = pricer.block(Bundles.joined([found, self._left]).rising(), MORE_PLANS_WALKED)
        for bundle in heapq.merge(self._near, others, key=lambda one: one.bound_s):
            if tries == 0 or self._late() or bundle.bound_s >= self._worth_s():
                return
            bounds = self._path_bounds(bundle)
            at = int(np.argmin(bounds))
            walked = bundle.members[at]
            if bounds[at] < self._worth_s() and not self._is_known(walked):
                tries -= 1
                solution = self._opened(walked, self._worth_s()).solution
                if solution is not None:
                    self._offer(walked, solution)

    def _worth_s(self) -> float:
        """Plans from this step on are no runners-up."""
        steps = [found.step_s for found in self.state.distinct()[: self._limits.wanted + 1]]
        return steps[-1] if len(steps) > self._limits.wanted else self.state.best_s * MORE_PLANS_WITHIN

    def _behind(self, frontier: Frontier, pricer: BundlePricer) -> Iterator[Bundle]:
        """Meshes behind the best with the lowest nodes of their degrees."""
        worth_s = self.state.best_s * MORE_PLANS_WITHIN
        try:
            plain = plain_kinds(pricer.families)[:1]
            nodes = first_of_degrees(pricer.families, frontier.nodes(worth_s, Cut(), plain), DEGREES)
            few = nodes.take(slice(0, 2 * MORE_PLANS_TRIED + self._limits.wanted))
            found = frontier.bundles(
                few, worth_s, Cut(), Few(plain_states(pricer.families), MORE_PLANS_WALKED, MORE_PLANS_WALKED)
            )
        except Late:
            return
        yield from pricer.block(found, MORE_PLANS_WALKED)
