"""All meshes of a space in the order of their bounds, and their cost tables a block at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import Array, MeshCosts
from cost_models.mesh import Int, MeshBatch
from cost_models.mesh_costs import BatchRules, batch_rules, mesh_costs
from cost_models.pricing import PricedRows, Pricer

PRICED_TOGETHER = 64
"""Meshes whose tables are built in one go."""

AsSearched = Callable[[MeshCosts, tuple[str, ...]], MeshCosts]
"""The costs of a mesh as the search sees them under the user's recompute restrictions."""


@dataclass(slots=True)
class Walked:
    """One mesh on the walk: its bound, its place in a priced batch, and its costs, made when they are asked for."""

    bound_s: float
    batch: MeshBatch
    row: int
    costs: Callable[[], MeshCosts]
    _mesh: MeshCosts | None = None

    @property
    def mesh(self) -> MeshCosts:
        """The costs."""
        if self._mesh is None:
            self._mesh = self.costs()
        return self._mesh


def walked_mesh(
    parts: tuple[Pricer, AsSearched], place: tuple[PricedRows, BatchRules, int], own: tuple[MeshBatch, int]
) -> Walked:
    """A mesh of a priced batch as the search sees it; `own` is its place in a batch with its own scopes."""
    (pricer, as_searched), (priced, rules, at) = parts, place

    def costs() -> MeshCosts:
        return as_searched(mesh_costs(pricer, priced, rules, at), own[0].key.scopes)

    return Walked(-np.inf, *own, costs)


@dataclass(frozen=True, slots=True)
class Walk:
    """Meshes of several batches; `order` lists those with a finite bound, the lowest first."""

    batches: tuple[MeshBatch, ...]
    owner: Int
    row: Int
    bound_s: Array
    order: Int

    @classmethod
    def of(cls, batches: tuple[MeshBatch, ...], bounds: list[Array]) -> "Walk":
        """The walk over batches with the bounds of their meshes."""
        none = [np.zeros(0, dtype=np.int64)]
        owner = np.concatenate([np.full(b.size, i) for i, b in enumerate(batches)] or none)
        row = np.concatenate([np.arange(b.size) for b in batches] or none)
        bound_s = np.concatenate(bounds or [np.zeros(0)])
        order = np.argsort(bound_s, kind="stable")
        return cls(batches, owner, row, bound_s, order[np.isfinite(bound_s[order])])

    @property
    def num_impossible(self) -> int:
        """Meshes whose bound says that nothing fits."""
        return int(self.bound_s.size - self.order.size)

    def bounds_from(self, start: int) -> Array:
        """Bounds of the meshes from a place of the walk on, rising."""
        rest: Array = self.bound_s[self.order[start:]]
        return rest

    def block(
        self, start: int, pricer: Pricer, as_searched: AsSearched, size: int = PRICED_TOGETHER
    ) -> Iterator[Walked]:
        """The next meshes from a place of the walk, in order, priced together."""
        places = self.order[start : start + size]
        priced_at: dict[int, tuple[PricedRows, BatchRules, int]] = {}
        for key in np.unique(self.owner[places]):
            members = places[self.owner[places] == key]
            batch = self.batches[int(key)].take(self.row[members])
            priced = pricer.price(batch)
            rules = batch_rules(pricer, priced)
            priced_at |= {int(place): (priced, rules, at) for at, place in enumerate(members)}
        for place in places.tolist():
            priced, rules, at = priced_at[place]
            # One table at a time: those of very deep models are large.
            walked = walked_mesh((pricer, as_searched), (priced, rules, at), (priced.meshes, at))
            yield replace(walked, bound_s=float(self.bound_s[place]))
