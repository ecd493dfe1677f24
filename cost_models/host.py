"""The host beside its devices: how fast it steps an optimizer, and what moves over a device's link to it.

    t = bytes over the link / (link x e) + bytes the host's optimizer reads and writes / its share of the host

Symbols: link one-way bytes/s of a device to the host (device file), divided by the devices that share it under one
switch (a cluster's `devices_per_host_link`; all copy at once), e the share of it that pinned copies reach.
Limit: a host busy with data loading is not seen.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from cost_models.chunk import Array
from cost_models.specs.cluster import ClusterSpec, DeviceGroup
from cost_models.units import Num

LINK_EFFICIENCY: Final = 0.8
"""[Empirical] share of the link's rate that large copies from pinned memory reach; 24 to 26 of 31.5 GB/s are commonly
shown by bandwidth tests over PCIe 4.0 x16."""

NODE_STEP_BYTES_PER_S: Final = 100e9
"""[Empirical] what a node's processors read and write in a vectorised optimizer step, over all devices of the node:
assumed, the order of a two-socket DDR4 or DDR5 server; to be measured."""


@dataclass(frozen=True, slots=True)
class HostRates:
    """Bytes/s of one device: over its link to the host, and of the host's optimizer step for it."""

    link_bytes_per_s: float
    step_bytes_per_s: float

    def link_seconds(self, moved_bytes: Num) -> Array:
        """Seconds of a copy between host and device."""
        return np.asarray(moved_bytes, dtype=float) / self.link_bytes_per_s

    def step_seconds(self, traffic_bytes: Num, moved_bytes: Num) -> Array:
        """Seconds of the host's part of an optimizer step, with its copies before and after."""
        return np.asarray(traffic_bytes, dtype=float) / self.step_bytes_per_s + self.link_seconds(moved_bytes)


def host_rates(cluster: ClusterSpec) -> HostRates:
    """Rates of the first group's nodes; a processor that trains is its own host."""
    group, device = cluster.groups[0], cluster.device
    if device.architecture == "cpu":
        memory = device.memory_bytes_per_s.value
        return HostRates(memory, memory)
    sharing = min(group.devices_per_host_link, _sharing(group))
    link = device.host_link_bytes_per_s.value * LINK_EFFICIENCY / sharing
    return HostRates(link, NODE_STEP_BYTES_PER_S / _sharing(group))


def host_room_bytes(cluster: ClusterSpec) -> float:
    """Host memory of one device's share of a node; infinite where the cluster does not say."""
    group = cluster.groups[0]
    return group.host_bytes / _sharing(group) if group.host_bytes else float("inf")


def _sharing(group: DeviceGroup) -> int:
    """Devices of a node that are in use, and share its host."""
    return min(group.devices_per_node, group.num_devices)
