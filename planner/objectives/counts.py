"""Which numbers of devices an objective may choose from: whole nodes, parts of one node, and the cluster as given."""

from cost_models.specs.cluster import ClusterSpec

FINE_NODES = 64
STEPS_PER_DOUBLING = 32
"""Every number of whole nodes up to the first, then so many between a number and its double (3 %)."""


def all_counts(cluster: ClusterSpec) -> tuple[int, ...]:
    """Every number of devices inside one node, whole nodes (all of them up to 64 nodes), and all devices."""
    if not _may_shrink(cluster):
        return (cluster.num_devices,)
    node, most = cluster.groups[0].devices_per_node, cluster.num_devices
    nodes: list[int] = []
    number = 1
    while number * node <= most:
        nodes.append(number * node)
        number += 1 if number < FINE_NODES else (1 << (number.bit_length() - 1)) // STEPS_PER_DOUBLING
    return tuple(sorted({*range(1, min(node, most) + 1), *nodes, most}))


def coarse_counts(cluster: ClusterSpec) -> tuple[int, ...]:
    """Powers of two inside one node, then 1, 2, 3, 4, 6, 8, 12, ... whole nodes, and all devices."""
    if not _may_shrink(cluster):
        return (cluster.num_devices,)
    node, most = cluster.groups[0].devices_per_node, cluster.num_devices
    inside = {1 << power for power in range(node.bit_length()) if 1 << power < node}
    nodes = {factor << power for factor in (1, 3) for power in range(most.bit_length())}
    return tuple(sorted({d for d in {*inside, *(node * n for n in nodes)} if d < most} | {most}))


def doubled_counts(cluster: ClusterSpec) -> tuple[int, ...]:
    """1, 2, 4, ... devices inside one node, then 1, 2, 4, ... whole nodes, and all devices."""
    if not _may_shrink(cluster):
        return (cluster.num_devices,)
    node, most = cluster.groups[0].devices_per_node, cluster.num_devices
    powers = [1 << power for power in range(most.bit_length())]
    counts = {*(d for d in powers if d < node), *(node * n for n in powers)}
    return tuple(sorted({d for d in counts if d < most} | {most}))


def _may_shrink(cluster: ClusterSpec) -> bool:
    """Whether fewer devices are the same cluster: one group, of devices that do not share the host's memory."""
    return len(cluster.groups) == 1 and cluster.device.architecture != "cpu"
