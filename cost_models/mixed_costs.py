"""Costs of a pipeline over several device groups: every rank's device, memory and links are its group's.

    rank i          computes, reduces and steps as the devices of its pool do; its limit is their memory
    link (i, i+1)   the pool's own links inside a pool, the slowest tier on the way between two pools
    step            gradient norm, host work and stragglers over all devices in use: constants of the mesh

Where several kinds of devices share the ranks of one pool, every row takes what it takes on the slowest of them, and
the smallest memory counts: replicas of a stage wait for each other once a step, and all have as many micro-batches.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from cost_models.chunk import Array, MeshCosts, StepRules
from cost_models.communication import Network, Span
from cost_models.mesh import MeshBatch
from cost_models.mesh_costs import BatchRules, batch_rules, fixed_seconds, mesh_costs, send_seconds
from cost_models.overlap import expected_maximum_factor
from cost_models.pricing import PricedRows, Pricer
from cost_models.row_work import RowWork
from cost_models.states import RowStates

Names = tuple[str, ...]
"""Names of the device groups of a pool."""


@dataclass(frozen=True, slots=True)
class SharedPricer(Pricer):
    """Prices stages whose replicas lie on several kinds of devices; `kinds` are the pricers of each."""

    kinds: tuple[Pricer, ...] = ()

    def price(
        self, meshes: MeshBatch, work: RowWork | None = None, states: RowStates | None = None
    ) -> PricedRows:
        """Price a batch of meshes: every figure is the largest of all kinds, each with its own states."""
        work = self.work(meshes) if work is None else work
        found: PricedRows = _largest([kind.price(meshes, work) for kind in self.kinds])
        return found

    def work(self, meshes: MeshBatch) -> RowWork:
        """Work of every row alone, the longest and largest of all kinds."""
        found: RowWork = _largest([kind.work(meshes) for kind in self.kinds])
        return found

    def row_states(self, meshes: MeshBatch) -> RowStates:
        """States of every row alone, the longest and largest of all kinds."""
        found: RowStates = _largest([kind.row_states(meshes) for kind in self.kinds])
        return found


def _largest(values: list[Any]) -> Any:
    """The largest of each array of equally built values; everything else as in the first."""
    first = values[0]
    if isinstance(first, np.ndarray):
        return np.maximum.reduce(values)
    if not is_dataclass(first) or isinstance(first, MeshBatch):
        return first
    made: Any = type(first)
    return made(*(_largest([getattr(value, f.name) for value in values]) for f in fields(first)))


@dataclass(frozen=True)
class MixedCosts(MeshCosts):
    """Costs of a mesh whose ranks differ. `table` and `rules` are those of rank 0; ask `of_rank` for the others'."""

    parts: tuple[MeshCosts, ...] = ()  # costs that differ
    part_of_rank: tuple[int, ...] = ()
    pool_of_rank: tuple[int, ...] = ()
    seconds_of_link: tuple[float, ...] = ()

    def of_rank(self, rank: int) -> MeshCosts:
        """The costs as a pipeline rank has them."""
        return self.parts[self.part_of_rank[rank]]

    @property
    def alike(self) -> tuple[tuple[MeshCosts, tuple[int, ...]], ...]:
        """Costs, and the pipeline ranks that have them."""
        ranks = range(self.pp)
        return tuple(
            (part, tuple(rank for rank in ranks if self.part_of_rank[rank] == index))
            for index, part in enumerate(self.parts)
        )

    @property
    def link_s(self) -> Array:
        """Seconds of every link between pipeline ranks, (p,)."""
        return np.asarray(self.seconds_of_link)

    def mapped(self, change: Callable[[MeshCosts], MeshCosts]) -> "MixedCosts":
        """The same pipeline with every part changed alike."""
        parts = tuple(change(part) for part in self.parts)
        first = parts[self.part_of_rank[0]]
        return replace(
            self, parts=parts, table=first.table, rules=first.rules, may_recompute=first.may_recompute
        )


@dataclass(frozen=True, slots=True)
class MixedRows:
    """A batch of meshes with the same pools, priced on each; links and constants are arrays (B,)."""

    meshes: MeshBatch
    pools: tuple[tuple[Pricer, PricedRows, BatchRules], ...]
    ranks: np.ndarray  # (pools, B) pipeline ranks of each pool
    between_s: (
        np.ndarray
    )  # (pools, B) seconds from each pool to the next, the last from the last pool to the first
    fixed_s: np.ndarray
    straggler_factor: float


@dataclass(frozen=True, slots=True)
class Connections:
    """How pools are reached: pricers of each, the network between two, the network that joins all in use."""

    pricer: Callable[[Names], Pricer]
    between: Callable[[Names, Names], Network]
    whole: Callable[[Names], Network]


def price_pools(meshes: MeshBatch, connections: Connections) -> MixedRows:
    """Price a batch whose key names several pools."""
    pools = meshes.key.pools
    found = []
    for pool in pools:
        pricer = connections.pricer(pool.groups)
        priced = pricer.price(meshes)
        found.append((pricer, priced, batch_rules(pricer, priced)))
    ranks = np.stack([pool.devices // meshes.ranks_per_stage for pool in pools])
    pair, between = Span(2, 1), []
    for index, (pricer, priced, _) in enumerate(found):
        after = (index + 1) % len(pools)
        network = connections.between(pools[index].groups, pools[after].groups)
        there, back = (send_seconds(*side, pair, network) for side in ((pricer, priced), found[after][:2]))
        between.append(np.maximum(there, back))
    whole = connections.whole(tuple(name for pool in pools for name in pool.groups))
    factor = float(expected_maximum_factor(whole.num_devices, whole.noise))
    fixed_s = fixed_seconds(meshes, whole)
    return MixedRows(meshes, tuple(found), ranks, np.stack(between), fixed_s, factor)


def mixed_costs(rows: MixedRows, index: int) -> MixedCosts:
    """The costs of one mesh of a batch, with one part for each pool and each kind of neighbourhood in it."""
    fixed = {"step_fixed_s": float(rows.fixed_s[index]), "straggler_factor": rows.straggler_factor}
    whole = [mesh_costs(pricer, priced, rules, index) for pricer, priced, rules in rows.pools]
    pool_of_rank = np.repeat(np.arange(len(whole)), rows.ranks[:, index]).tolist()
    links = _links(rows, index, pool_of_rank)
    parts: dict[tuple[int, float, float], MeshCosts] = {}
    place: list[int] = []
    for rank, pool in enumerate(pool_of_rank):
        base = whole[pool]
        after = links[rank] if rank + 1 < len(links) or base.vpp > 1 else base.rules.send_s
        before = links[rank - 1] if rank > 0 or base.vpp > 1 else base.rules.send_s
        shown = (pool, _shown(base.rules, after), _shown(base.rules, before))
        if shown not in parts:
            rules = replace(base.rules, chunk_forward_s=shown[1], chunk_backward_s=shown[2], **fixed)
            parts[shown] = replace(base, rules=rules)
        place.append(list(parts).index(shown))
    first = whole[0]
    shared = {name: getattr(first, name) for name in ("schedule", "pp", "vpp", "num_micro_batches")}
    shared |= {name: getattr(first, name) for name in ("uniform_full", "uniform_chunks", "lone_ends")}
    made = tuple(parts.values())
    start = made[place[0]]
    return MixedCosts(
        table=start.table,
        rules=start.rules,
        parts=made,
        part_of_rank=tuple(place),
        pool_of_rank=tuple(pool_of_rank),
        seconds_of_link=tuple(links),
        **shared,
    )


def _links(rows: MixedRows, index: int, pool_of_rank: list[int]) -> list[float]:
    """Seconds from every pipeline rank to the next one, the last to the first."""
    inside = [float(rules.send_s[index]) for _, _, rules in rows.pools]
    between = rows.between_s[:, index].tolist()
    after = [*pool_of_rank[1:], pool_of_rank[0]]
    pairs = zip(pool_of_rank, after, strict=True)
    return [inside[pool] if pool == other else between[pool] for pool, other in pairs]


def _shown(rules: StepRules, link_s: float) -> float:
    """Seconds of a send that the rank itself waits for, on a link that is not the pool's own."""
    if rules.send_s <= 0.0:
        return 0.0
    return rules.chunk_forward_s / rules.send_s * link_s
