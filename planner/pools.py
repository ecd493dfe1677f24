"""How a cluster of several device groups is priced: a pricer for every pool of groups, and the links between pools."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cost_models.chunk import MeshCosts
from cost_models.communication import Network, network_of
from cost_models.engines.group_rules import usable_groups
from cost_models.mesh import MeshBatch
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.mixed_costs import Connections, Names, SharedPricer, mixed_costs, price_pools
from cost_models.pricing import Pricer
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.pools import SHARED, link_between, pool_clusters
from cost_models.specs.strategy import Strategy
from planner.situation import Situation

CostsOfRow = Callable[[int], MeshCosts]
"""The costs of one mesh of a priced batch."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Pricers of one situation, each made once."""

    situation: Situation
    allow_at_risk: bool = False
    pricers: dict[Names, Pricer] = field(default_factory=dict)
    links: dict[tuple[Names, Names], Network] = field(default_factory=dict)

    @property
    def usable(self) -> Names:
        """Groups whose devices compute in the job's precision."""
        return usable_groups(self.situation.cluster, self.situation.job.precision.value)

    def whole(self) -> Pricer:
        """The pricer of the cluster, as one pool of all its usable groups."""
        return self.pricer(self.usable if self.situation.cluster.is_mixed else ())

    def pricer(self, names: Names) -> Pricer:
        """The pricer of a pool of groups, of the cluster as it stands where none are named."""
        if names not in self.pricers:
            clusters = pool_clusters(self.situation.cluster, names) if names else (self.situation.cluster,)
            kinds = tuple(self._plain(cluster) for cluster in clusters)
            self.pricers[names] = kinds[0] if len(kinds) == 1 else _shared(kinds)
        return self.pricers[names]

    def between(self, first: Names, second: Names) -> Network:
        """The link from one pool to another."""
        if (first, second) not in self.links:
            self.links[first, second] = network_of(link_between(self.situation.cluster, first, second))
        return self.links[first, second]

    def costs_of(self, batch: MeshBatch) -> CostsOfRow:
        """Prices a batch; the costs of its meshes one by one."""
        names = [pool.groups for pool in batch.key.pools]
        if len(names) > 1:
            connections = Connections(self.pricer, self.between, lambda used: self.pricer(used).network)
            rows = price_pools(batch, connections)
            return lambda row: mixed_costs(rows, row)
        pricer = self.pricer(names[0] if names else ())
        priced = pricer.price(batch)
        rules = batch_rules(pricer, priced)
        return lambda row: mesh_costs(pricer, priced, rules, row)

    def cluster_of(self, strategy: Strategy, rank: int) -> ClusterSpec:
        """The pool of a pipeline rank as a cluster of its own."""
        names = tuple(strategy.stage_groups[rank].split(SHARED)) if strategy.stage_groups else ()
        return self.pricer(names).cluster

    def _plain(self, cluster: ClusterSpec) -> Pricer:
        of = replace(self.situation, cluster=cluster)
        prices = (of.engine, of.efficiency, of.network, self.allow_at_risk)
        return Pricer(of.model, cluster, of.job, *prices)


def _shared(kinds: tuple[Pricer, ...]) -> SharedPricer:
    """One pricer for kinds that share every stage: links of the first (all have the same), the smallest memory."""
    first = kinds[0]
    devices = [kind.cluster.device for kind in kinds]
    smallest = min(devices, key=lambda device: device.capacity_bytes.value)
    context = max((device.context_bytes for device in devices), key=lambda figure: figure.value)
    group = first.cluster.groups[0]
    weakest = smallest.model_copy(update={"context_bytes": context})
    cluster = first.cluster.model_copy(update={"groups": (group.model_copy(update={"device": weakest}),)})
    prices = (first.engine, first.efficiency, first.network, first.allow_at_risk)
    return SharedPricer(first.model, cluster, first.job, *prices, kinds=kinds)


def peak_flops(cluster: ClusterSpec, strategy: Strategy, precision: str) -> float:
    """Dense GEMM peak of all devices that a strategy uses, FLOP/s."""
    names = [name for text in strategy.stage_groups for name in text.split(SHARED)]
    used = [
        (cluster.device_of(index), group.num_devices)
        for index, (name, group) in enumerate(zip(cluster.group_names, cluster.groups, strict=True))
        if not names or not cluster.is_mixed or name in names
    ]
    return sum(device.peak(precision) * count for device, count in used)
