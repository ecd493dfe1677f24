"""The search over a cluster of several device groups: every declared placement, one incumbent, one certificate.

A placement on one pool is a cluster of equal devices, or of devices that wait for the slowest, and is searched as such
(space_search.py). Placements on several pools are bounded together (bounds.py), and their meshes opened in the order of
their bounds (opening.py). A mesh is put away by a bound as everywhere else.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import Array, MeshCosts
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.mixed_costs import MixedCosts
from cost_models.specs.strategy import Strategy
from planner.answers import Progress
from planner.candidates import Candidates, enumerate_candidates, strategy_of
from planner.pools import Pools
from planner.restrictions import Restrictions
from planner.search.bounding.path_pool import PathPool
from planner.search.mixed.batches import Batch, Batches
from planner.search.mixed.opening import open_mixed
from planner.search.mixed.placements import Placement
from planner.search.mixed.space import ON_POOLS, add_values, facts_of, on_pools, placements_asked
from planner.search.problem import InnerSolution
from planner.search.space.opening import Opening
from planner.search.space.polish import Polish
from planner.search.space.search_state import Found, RecomputeRule, SearchLimits, SearchState
from planner.search.space.space_search import SpaceSearch

TOGETHER = 256
"""Meshes of several pools that are priced in one go."""

DIVED = 2
DIVED_AMONG = 12
LOWEST = 16_384
"""Meshes of each placement and recompute base that are opened before all others: among so many until some fit; and how
many are bounded sharply before any step is known."""

_Bounded = tuple[MeshBatch, Array]
"""Meshes and their bounds."""


@dataclass(frozen=True, slots=True)
class MixedOutcome:
    """What a search found, and what its space held."""

    state: SearchState
    total: int
    illegal: Mapping[str, int]
    space: Mapping[str, object]

    @property
    def num_legal(self) -> int:
        """Meshes that break no rule."""
        return self.total - sum(self.illegal.values())


class MixedSearch:
    """Searches all placements of one situation."""

    def __init__(
        self,
        pools: Pools,
        restrictions: Restrictions,
        recompute: RecomputeRule,
        limits: SearchLimits,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self._pools, self._restrictions, self._recompute = pools, restrictions, recompute
        self._limits, self._progress = limits, on_progress
        self._deadline = time.monotonic() + limits.max_seconds
        self._total, self._paths = 0, PathPool()
        self._illegal: dict[str, int] = {}
        self._space: dict[str, object] = {}
        self.state = SearchState(within_s=limits.within_s)

    def run(self) -> MixedOutcome:
        """Search until the gap is closed or time is up."""
        wanted = placements_asked(self._pools, self._restrictions)
        batches = self._dive([of for place in wanted if len(place.pools) > 1 for of in self._listed(place)])
        for place in sorted(wanted, key=lambda one: len(one.names)):  # one group alone is searched fastest
            if len(place.pools) == 1:
                self._one_pool(place)
        self._walk(batches)
        self._polish()
        self._space["groups"] = [place.text for place in wanted]
        if batches:
            self._space["several_groups"] = ON_POOLS
        return MixedOutcome(self.state, self._total, self._illegal, self._space)

    def least_bound_s(self) -> float:
        """A step that no layout of any placement beats, without solving anything; infinite where none fits."""
        least, batches = np.inf, Batches(self._pools, self._recompute)
        for place in placements_asked(self._pools, self._restrictions):
            if len(place.pools) > 1:
                for meshes in self._listed(place):
                    batch, _ = batches.below(meshes, least)
                    if batch is not None:
                        sharp = batch.sharpened(self._global_batch, least, self._late)
                        least = min(least, float(sharp.bound_s.min(initial=np.inf)))
            else:
                search, candidates = self._searcher(place)
                least = min(least, search.least_of_families_s(candidates.families))
        return least

    def _late(self) -> bool:
        return time.monotonic() > self._deadline or self._limits.stop()

    # ---------------------------------------------------------------- one pool

    def _one_pool(self, place: Placement) -> None:
        """Search a placement on one pool with the incumbent of all others."""
        search, candidates = self._searcher(place)
        search.state.best = self.state.best
        enough = len(self.state.distinct()) > self._limits.wanted
        found = search.run_families(candidates.families, only_best=enough)
        text = place.pools[0].text
        for one in found.found:
            strategy = replace(one.strategy, stage_groups=(text,) * one.strategy.pp)
            self.state.offer(Found(strategy, one.step_s))
        self.state.put_away(found.lower_bound_s)
        for name in ("out_of_memory", "bounded", "solved", "open"):
            setattr(self.state, name, getattr(self.state, name) + getattr(found, name))

    def _searcher(self, place: Placement) -> tuple[SpaceSearch, Candidates]:
        names = place.pools[0].groups
        left = max(self._deadline - time.monotonic(), 1e-3)
        limits = replace(self._limits, max_seconds=left)
        search = SpaceSearch(self._pools.pricer(names), self._recompute, limits, self._progress)
        return search, self._candidates(place, self._restrictions)

    # ---------------------------------------------------------------- several pools

    def _listed(self, place: Placement) -> list[MeshBatch]:
        """Legal meshes of a placement on several pools, by recompute base."""
        restrictions = on_pools(self._restrictions)
        if restrictions is None:
            return []
        candidates = self._candidates(place, restrictions)
        return [
            replace(batch, key=replace(batch.key, pools=place.pools))
            for batch in candidates.batches
            if batch.size
        ]

    @property
    def _global_batch(self) -> int:
        return self._pools.situation.job.global_batch

    def _dive(self, listed: list[MeshBatch]) -> list[_Bounded]:
        """Sharper bounds batch by batch; the lowest meshes of each are opened for a good step, and not counted yet."""
        batches, found = Batches(self._pools, self._recompute), []
        for meshes in sorted(listed, key=lambda one: len(one.key.scopes)):
            batch, above_s = batches.below(meshes, self._cutoff())
            self._put_rest_away(above_s)
            if batch is None:
                continue
            if np.isinf(self._cutoff()) and batch.meshes.size > LOWEST:
                lowest_s = float(np.partition(batch.bound_s, LOWEST)[LOWEST])
                batch = batch.sharpened(self._global_batch, lowest_s, self._late)
                self._open_lowest(batch)
            batch = batch.sharpened(self._global_batch, self._cutoff(), self._late)
            self._open_lowest(batch)
            found.append((batch.meshes, batch.bound_s))
        return found

    def _open_lowest(self, batch: Batch) -> None:
        """Open the lowest meshes, until a few of them fit."""
        lowest = np.argsort(batch.bound_s, kind="stable")[:DIVED_AMONG]
        lowest = lowest[batch.bound_s[lowest] < self._cutoff()]
        if not lowest.size:
            return
        meshes, fitting = batch.meshes.take(lowest), 0
        costs_of = self._pools.costs_of(meshes)
        for row, bound_s in enumerate(batch.bound_s[lowest].tolist()):
            if fitting == DIVED or bound_s >= self._cutoff() or self._late():
                return
            fitting += self._open(meshes, row, costs_of(row)).solution is not None

    def _walk(self, batches: list[_Bounded]) -> None:
        """Open meshes in the order of their bounds until none can beat the best by more than the gap."""
        none = [np.zeros(0, dtype=np.int64)]
        bound_s = np.concatenate([bounds for _, bounds in batches] or [np.zeros(0)])
        owner = np.concatenate([np.full(meshes.size, i) for i, (meshes, _) in enumerate(batches)] or none)
        row = np.concatenate([np.arange(meshes.size) for meshes, _ in batches] or none)
        self.state.out_of_memory += int(np.isinf(bound_s).sum())
        order = np.argsort(bound_s, kind="stable")
        order = order[np.isfinite(bound_s[order])]
        for start in range(0, order.size, TOGETHER):
            places = order[start : start + TOGETHER]
            if bound_s[places[0]] >= self._cutoff() or self._late():
                self._put_rest_away(bound_s[order[start:]])
                return
            for key in np.unique(owner[places]):
                mine = places[owner[places] == key]
                meshes = batches[int(key)][0].take(row[mine])
                costs_of = self._pools.costs_of(meshes)
                for at, place in enumerate(mine.tolist()):
                    self._look(meshes, at, costs_of(at), float(bound_s[place]))
            self._report(float(bound_s[places[0]]), start + len(places), int(order.size))

    def _look(self, meshes: MeshBatch, row: int, costs: MeshCosts, bound_s: float) -> None:
        """Open one mesh, if it could still win, and count it."""
        if bound_s >= self._cutoff():
            self._count("bounded", bound_s)
            return
        if self._late():
            self._count("open", bound_s)
            return
        opened = self._open(meshes, row, costs)
        if not np.isfinite(opened.bound_s):
            self.state.out_of_memory += 1
            return
        bound_s = max(bound_s, opened.bound_s)
        name = "solved" if opened.solution is not None else "bounded"
        closed = opened.is_exact or bound_s >= self._cutoff()
        self._count(name if closed else "open", bound_s)

    def _open(self, meshes: MeshBatch, row: int, costs: MeshCosts) -> Opening:
        """What the exact choice inside one mesh says; a better plan is kept."""
        assert isinstance(costs, MixedCosts)  # keys of several pools are priced so
        mesh = self._as_searched(costs, meshes.key.scopes)
        opened = open_mixed(mesh, self.state.best_s, self._limits.gap, self._late, self._paths)
        if opened.solution is not None:
            self._offer(meshes, row, mesh, opened.solution)
        return opened

    def _polish(self) -> None:
        """Improve the best plans by small steps, as the searches of one pool have done with theirs."""
        rule = self._recompute
        Polish(self._costs_of, rule.takes, rule.scopes, self._paths).improve_best(
            self.state, self._limits.wanted, self._late
        )

    def _costs_of(self, strategy: Strategy) -> MeshCosts:
        costs, scopes = (
            self._pools.costs_of(batch_of([strategy], mesh_key(strategy)))(0),
            strategy.recompute.scopes,
        )
        if isinstance(costs, MixedCosts):
            return self._as_searched(costs, scopes)
        return self._recompute.apply(costs, scopes)

    def _as_searched(self, costs: MixedCosts, scopes: tuple[str, ...]) -> MixedCosts:
        """Costs under the user's recompute restrictions, on every pool alike."""
        return costs.mapped(lambda part: self._recompute.apply(part, scopes))

    def _offer(self, meshes: MeshBatch, row: int, mesh: MixedCosts, solution: InnerSolution) -> None:
        chosen = self._recompute.chosen(mesh, meshes.key.scopes, solution)
        if chosen is not None:
            strategy = strategy_of(meshes, row, solution.stages, chosen[0])
            self.state.offer(Found(strategy, chosen[1]))

    def _cutoff(self) -> float:
        return self.state.best_s * (1.0 - self._limits.gap)

    def _count(self, name: str, bound_s: float) -> None:
        setattr(self.state, name, getattr(self.state, name) + 1)
        self.state.put_away(bound_s)

    def _put_rest_away(self, values: Array) -> None:
        cut = values >= self._cutoff()
        self.state.bounded += int(cut.sum())
        self.state.open += int((~cut).sum())
        self.state.put_away(float(values.min(initial=np.inf)))

    # ---------------------------------------------------------------- shared

    def _candidates(self, place: Placement, restrictions: Restrictions) -> Candidates:
        situation = self._pools.situation
        found = enumerate_candidates(situation.engine, facts_of(situation, place), restrictions)
        self._total += found.total
        for rule, count in found.illegal.items():
            self._illegal[rule] = self._illegal.get(rule, 0) + count
        for axis, values in found.space.items():
            add_values(self._space, axis, values)
        return found

    def _report(self, bound_s: float, done: int, total: int) -> None:
        best = self.state.best_s
        bound = min(bound_s, self.state.lower_bound_s, best)
        gap = (best - bound) / best if np.isfinite(best) else None
        self._progress(Progress("pools", bound, best if np.isfinite(best) else None, gap, done, total))
