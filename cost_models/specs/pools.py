"""Which device groups a pipeline rank lies on: pools of groups, the links inside each and between two of them.

A pool is one device group, or several whose devices all hold replicas of every stage of the pool. A pipeline passes
through pools in an order, each once; every pool holds as many pipeline ranks as its devices make, at tp x cp x dp
devices a rank. Written `a100*4+h100*4` (four ranks on a100, then four on h100) or `a100/h100*8` (all eight on both).
"""

from collections.abc import Iterable
from itertools import groupby
from math import gcd
from typing import NamedTuple

from cost_models.errors import IllegalStrategy, Violation
from cost_models.specs.cluster import ClusterSpec, DeviceGroup
from cost_models.specs.links import LinkTier
from cost_models.suggest import did_you_mean

SHARED = "/"
"""Between the names of groups that share a pool."""

POOL_RULE = "device_groups"


class Pool(NamedTuple):
    """Names of the device groups of a run of pipeline ranks, and the devices of the run."""

    groups: tuple[str, ...]
    devices: int

    @property
    def text(self) -> str:
        """`a100` or `a100/h100`."""
        return SHARED.join(self.groups)


def pools_of(stage_groups: tuple[str, ...], devices_per_rank: int) -> tuple[Pool, ...]:
    """Pools of pipeline ranks that say which groups they lie on."""
    runs = [(text, len(list(same))) for text, same in groupby(stage_groups)]
    return tuple(Pool(tuple(text.split(SHARED)), ranks * devices_per_rank) for text, ranks in runs)


def groups_text(stage_groups: tuple[str, ...]) -> str:
    """`a100*4+h100*4`."""
    return "+".join(f"{text}*{len(list(same))}" for text, same in groupby(stage_groups))


def full_names(text: str, names: tuple[str, ...]) -> str:
    """A pool as stated, every group by its whole name (a beginning that only one group has is enough)."""
    found = []
    for part in text.split(SHARED):
        alike = [part] if part in names else [name for name in names if name.startswith(part)]
        if len(alike) != 1:
            why = f"is none of {', '.join(names)}" if not alike else f"may be {' or '.join(alike)}"
            detail = f"device group {part[:60]!r} {why}; {did_you_mean(part[:60], names)}".rstrip("; ")
            raise IllegalStrategy((Violation(POOL_RULE, detail, tuple(alike or names)),))
        found.append(alike[0])
    order = [name for name in names if name in found]
    if len(set(found)) < len(found):
        detail = f"groups={text[:80]} names a device group twice in one pool"
        raise IllegalStrategy((Violation(POOL_RULE, detail, (SHARED.join(order),)),))
    return SHARED.join(order)


def members(cluster: ClusterSpec, names: Iterable[str]) -> tuple[int, ...]:
    """Indices of groups by name."""
    known = cluster.group_names
    return tuple(known.index(name) for name in names)


def devices_of(cluster: ClusterSpec, names: Iterable[str]) -> int:
    """Devices of the named groups together."""
    return sum(cluster.groups[index].num_devices for index in members(cluster, names))


def pool_clusters(cluster: ClusterSpec, names: tuple[str, ...]) -> tuple[ClusterSpec, ...]:
    """A pool as clusters of equal devices: one for each kind of device in it, all with the pool's links and size.

    Ranks are numbered group by group, so a domain of the pool holds as many consecutive ranks as fit into the domains
    of all its groups (their greatest common divisor), and a tier is as slow as that of the slowest group.
    """
    indices = members(cluster, names)
    devices = devices_of(cluster, names)
    tiers = _joined(cluster, indices)
    meeting = meeting_tier(cluster, indices)
    around = {"devices_per_domain": devices}
    tiers = (*tiers[:meeting], *(tier.model_copy(update=around) for tier in tiers[meeting:]))
    kinds: list[DeviceGroup] = []
    for index in indices:
        group = cluster.groups[index]
        if all(group.device != one.device for one in kinds):
            kinds.append(group)
    return tuple(
        ClusterSpec.model_construct(
            name=cluster.name, groups=(_resized(group, cluster, indices),), tiers=tiers
        )
        for group in kinds
    )


def link_between(cluster: ClusterSpec, first: tuple[str, ...], second: tuple[str, ...]) -> ClusterSpec:
    """Two devices joined by what lies between two pools: the slowest tier on the way, as a cluster of its own.

    Groups meet on the innermost common tier of which one domain holds all of both; what leaves a node passes every
    tier from the second one up to there. Its latency is the longest of these.
    """
    indices = members(cluster, (*first, *second))
    tiers = _joined(cluster, indices)
    at = meeting_tier(cluster, indices)
    passed = tiers[min(1, at) : at + 1]
    slowest = min(passed, key=lambda tier: tier.bytes_per_s_each(tier.shared_by))
    latency = max((tier.latency_s for tier in passed), key=lambda figure: figure.value)
    tier = slowest.model_copy(
        update={"devices_per_domain": 2, "latency_s": latency, "physical_devices_per_domain": None}
    )
    group = cluster.groups[indices[0]].model_copy(
        update={"nodes": 2, "devices_per_node": 1, "devices": None, "tiers": ()}
    )
    return ClusterSpec.model_construct(name=cluster.name, groups=(group,), tiers=(tier,))


def meeting_tier(cluster: ClusterSpec, indices: tuple[int, ...]) -> int:
    """Index of the innermost common tier of which one domain holds all devices of the groups."""
    own = max(len(cluster.groups[index].tiers) for index in indices)
    starts = [
        sum(group.num_devices for group in cluster.groups[:index]) for index in range(len(cluster.groups) + 1)
    ]
    low, high = min(starts[index] for index in indices), max(starts[index + 1] for index in indices)
    last = len(cluster.tiers) - 1
    for at in range(own, last):
        domain = cluster.tiers[at].devices_per_domain
        if low // domain == (high - 1) // domain:
            return at
    return last


def _joined(cluster: ClusterSpec, indices: tuple[int, ...]) -> tuple[LinkTier, ...]:
    """Tiers that hold for all of the groups: each as slow as the slowest, its domains their common divisor."""
    found: list[LinkTier] = []
    for at in range(len(cluster.tiers)):
        of_groups = [
            cluster.tiers_of(index)[at].within(cluster.groups[index].num_devices) for index in indices
        ]
        slowest = min(of_groups, key=lambda tier: tier.bytes_per_s_each(tier.shared_by))
        latency = max((tier.latency_s for tier in of_groups), key=lambda figure: figure.value)
        domain = gcd(*(tier.devices_per_domain for tier in of_groups))
        update = {"devices_per_domain": domain, "latency_s": latency, "physical_devices_per_domain": None}
        found.append(slowest.model_copy(update=update))
    return tuple(found)


def _resized(group: DeviceGroup, cluster: ClusterSpec, indices: tuple[int, ...]) -> DeviceGroup:
    """One group that stands for a pool: its own nodes, or as many of its nodes as the pool's devices need."""
    devices = sum(cluster.groups[index].num_devices for index in indices)
    host = min(cluster.groups[index].host_bytes / cluster.groups[index].devices_per_node for index in indices)
    per_node = gcd(*(cluster.groups[index].devices_per_node for index in indices))
    nodes = -(-devices // per_node)
    partial = None if nodes * per_node == devices else devices
    update = {"nodes": nodes, "devices_per_node": per_node, "devices": partial, "tiers": ()}
    return group.model_copy(update=update | {"host_bytes": host * per_node})
