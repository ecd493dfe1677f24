"""The declared placements: on which device groups a pipeline lies, and in which order it passes through them.

One pool          every non-empty set of groups shares all stages, each data-parallel replica whole inside one group
Several pools     every ordered choice of two groups or more, each with a run of whole pipeline ranks

Groups left out stay idle. With more than three groups, several pools are all groups in the order of the cluster or
the reverse, and shared pools are single groups, pairs of neighbours and all. Groups that are alike in everything and
meet on the same tier stand in the order of the cluster only: swapping them changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.pools import Pool, devices_of

MOST_GROUPS = 3
"""Groups up to which every choice and order is declared."""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Pools in the pipeline's order."""

    pools: tuple[Pool, ...]

    @property
    def names(self) -> Names:
        """All groups in use."""
        return tuple(name for pool in self.pools for name in pool.groups)

    @property
    def text(self) -> str:
        """`a100+h100` (one after the other) or `a100/h100` (together)."""
        return "+".join(pool.text for pool in self.pools)


def placements(cluster: ClusterSpec, usable: Names) -> tuple[Placement, ...]:
    """All declared placements on the usable groups, the ones with most devices first."""
    shared = [_placement(cluster, (names,)) for names in _sets(usable)]
    runs = [_placement(cluster, tuple((name,) for name in names)) for names in _orders(usable)]
    twins = _twins(cluster)
    kept = [place for place in (*runs, *shared) if _is_first(place.names, twins)]
    return tuple(sorted(kept, key=lambda place: -sum(pool.devices for pool in place.pools)))


def _placement(cluster: ClusterSpec, pools: tuple[Names, ...]) -> Placement:
    return Placement(tuple(Pool(names, devices_of(cluster, names)) for names in pools))


def _sets(usable: Names) -> Iterator[Names]:
    """Groups that share a pool."""
    if len(usable) <= MOST_GROUPS:
        for size in range(1, len(usable) + 1):
            yield from combinations(usable, size)
        return
    yield from ((name,) for name in usable)
    yield from pairwise(usable)
    yield usable


def _orders(usable: Names) -> Iterator[Names]:
    """Groups that a pipeline passes through."""
    if len(usable) <= MOST_GROUPS:
        for size in range(2, len(usable) + 1):
            yield from permutations(usable, size)
        return
    yield usable
    yield usable[::-1]


def _twins(cluster: ClusterSpec) -> dict[str, int]:
    """A number for every group, the same for groups that may be swapped."""
    names, groups = cluster.group_names, cluster.groups
    own = max(len(group.tiers) for group in groups)
    looks = [
        (group.device, group.num_devices, group.devices_per_node, group.tiers, group.host_bytes)
        for group in groups
    ]
    if len(cluster.tiers) - own > 1:
        return dict(zip(names, range(len(names)), strict=True))
    return {name: looks.index(look) for name, look in zip(names, looks, strict=True)}


def _is_first(names: Names, twins: dict[str, int]) -> bool:
    """Whether of groups that may be swapped the first ones are used, in the order of the cluster."""
    for kind in set(twins.values()):
        alike = [name for name in twins if twins[name] == kind]
        used = [name for name in names if name in alike]
        if used != alike[: len(used)]:
            return False
    return True
