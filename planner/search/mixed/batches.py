"""Meshes of pipelines over several pools, batch by batch: priced and bounded when their turn comes.

A batch holds the meshes of one placement and recompute base. Kernels with recompute scopes take at least as long as
without, so what the quick bound without scopes puts at the cut-off is not priced with them. Pools that lie in two
placements are priced once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import MeshBatch, MeshKey
from planner.families import AXES
from planner.pools import Pools
from planner.search.mixed.bounds import Frame, Recomputes, mixed_bounds, quick_bounds
from planner.search.mixed.pool_sums import PoolSums, block_counts, pool_sums
from planner.search.space.search_state import RecomputeRule


@dataclass(frozen=True, slots=True)
class Batch:
    """Meshes with their bounds, quick ones at first."""

    meshes: MeshBatch
    bound_s: Array
    frame: Frame

    def sharpened(self, global_batch: int, cutoff_s: float, late: Callable[[], bool]) -> "Batch":
        """The same with the bounds of all meshes below the cut-off made sharper."""
        below = np.flatnonzero(self.bound_s < cutoff_s)
        sharp_s = mixed_bounds(self.frame.take(below), self.meshes.take(below), global_batch, late)
        bound_s = self.bound_s.copy()
        bound_s[below] = np.maximum(bound_s[below], sharp_s)
        return replace(self, bound_s=bound_s)


@dataclass(slots=True)
class Batches:
    """What turns lists of meshes into batches; the quick bounds of kinds without scopes and pools' sums are kept."""

    pools: Pools
    rule: RecomputeRule
    _plain: dict[MeshKey, tuple[MeshBatch, Array]] = field(default_factory=dict)
    _sums: dict[tuple[object, ...], tuple[MeshBatch, PoolSums]] = field(default_factory=dict)

    def below(self, meshes: MeshBatch, cutoff_s: float) -> tuple[Batch | None, Array]:
        """The meshes whose quick bounds without scopes are below the cut-off, if any, and the bounds of the others."""
        known = self._plain.get(replace(meshes.key, scopes=()))
        above_s = np.zeros(0)
        if known is not None and _alike(known[0], meshes):
            below = known[1] < cutoff_s
            meshes, above_s = meshes.take(np.flatnonzero(below)), known[1][~below]
            if not meshes.size:
                return None, above_s
        frame = self._frame(meshes)
        bound_s = quick_bounds(frame, meshes, self.pools.situation.job.global_batch)
        if not meshes.key.scopes:
            self._plain[meshes.key] = (meshes, bound_s)
        return Batch(meshes, bound_s, frame), above_s

    def _frame(self, meshes: MeshBatch) -> Frame:
        names, situation = [pool.groups for pool in meshes.key.pools], self.pools.situation
        together = self.pools.pricer(tuple(name for own in names for name in own))
        return Frame(
            tuple(self._sums_of(meshes, names, place) for place in range(len(names))),
            block_counts(self.pools.pricer(names[0]), meshes),
            together.network,
            Recomputes(self.rule.free_with(meshes.key.scopes), self.rule.everywhere),
            situation.engine.space(situation.model, situation.job).uniform_full,
        )

    def _sums_of(self, meshes: MeshBatch, names: list[tuple[str, ...]], place: int) -> PoolSums:
        """Sums of one pool, which the next one and the one before it in the ring of pools matter to."""
        own, after, before = names[place], names[(place + 1) % len(names)], names[place - 1]
        bare = replace(meshes.key, pools=())
        kept = self._sums.get((own, after, before, bare))
        if kept is not None and _alike(kept[0], meshes):
            return kept[1]
        recomputed = (self.rule.free_with(meshes.key.scopes), self.rule.everywhere)
        links = (self.pools.between(own, after), self.pools.between(before, own))
        sums = pool_sums(self.pools.pricer(own), meshes, recomputed, links)
        if not meshes.key.scopes:
            self._sums[own, after, before, bare] = (meshes, sums)
        return sums


def _alike(one: MeshBatch, other: MeshBatch) -> bool:
    """Whether two batches differ in their keys alone."""
    return one.size == other.size and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in AXES
    )
