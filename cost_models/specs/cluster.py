"""A cluster: groups of equal devices, and the link tiers that join them, from the inside out."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import Field, StrictInt, model_validator

from cost_models.errors import InvalidCluster
from cost_models.specs.base import Frozen
from cost_models.specs.device import DeviceSpec
from cost_models.specs.links import MAX_DEVICES, LinkTier, filled_domain, filled_tiers, get

__all__ = ["MAX_DEVICES", "ClusterSpec", "DeviceGroup", "LinkTier", "check_num_devices", "filled_domain"]


class DeviceGroup(Frozen):
    """Equal nodes of equal devices; `devices` is given where the last node is only partly used.

    `host_bytes` counts a node's memory; `devices_per_host_link` devices share one link to it (under one PCIe switch),
    which copies of what is offloaded divide; price and power count one device (power with its share of the node).
    `source` says where host memory, price and power come from. `tiers` stand here only where the inside of
    these nodes differs from the other groups': they replace as many of the cluster's innermost tiers. `name` is
    what strategies call the group; where it is left out, the device's name.
    """

    name: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9._-]{0,63})?$")
    device: DeviceSpec | str
    nodes: StrictInt
    devices_per_node: StrictInt
    devices: StrictInt | None = None
    host_bytes: float = Field(default=0.0, ge=0)
    devices_per_host_link: StrictInt = Field(default=1, ge=1)
    price_per_device_hour_usd: float | None = Field(default=None, ge=0)
    power_w: float | None = Field(default=None, gt=0)
    source: str = ""
    tiers: tuple[LinkTier, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_domains(cls, given: Any) -> Any:
        """Own tiers may leave out what follows from the group: a node inside, all of it outside."""
        tiers, devices = get(given, "tiers"), _count_devices([given])
        if not tiers or not isinstance(tiers, list | tuple) or devices is None:
            return given
        return {**given, "tiers": filled_tiers(tiers, devices, given["devices_per_node"], own=True)}

    @model_validator(mode="after")
    def _countable(self) -> "DeviceGroup":
        for key, count in (("nodes", self.nodes), ("devices_per_node", self.devices_per_node)):
            if count < 1:
                raise InvalidCluster(f"{key} is {count}; give at least 1", pointer=f"/cluster/groups/{key}")
        full = self.nodes * self.devices_per_node
        check_num_devices(full if self.devices is None else self.devices)
        if not full - self.devices_per_node < self.num_devices <= full:
            detail = (
                f"{self.num_devices} devices do not fill {self.nodes} nodes of {self.devices_per_node}; give "
                f"{full - self.devices_per_node + 1} to {full} devices, or "
                f"{-(-self.num_devices // self.devices_per_node)} nodes"
            )
            raise InvalidCluster(detail, pointer="/cluster/groups/devices")
        return self

    @property
    def num_devices(self) -> int:
        """Devices in use."""
        return self.nodes * self.devices_per_node if self.devices is None else self.devices

    def with_devices(self, num_devices: int) -> "DeviceGroup":
        """The same kind of node with another number of devices, the last node partly used if it must."""
        check_num_devices(num_devices)
        nodes = -(-num_devices // self.devices_per_node)
        partial = None if num_devices == nodes * self.devices_per_node else num_devices
        return self.model_copy(update={"nodes": nodes, "devices": partial})


class ClusterSpec(Frozen):
    """All devices of a job and the network between them; ranks are numbered group by group, node by node."""

    name: str = Field(min_length=1)
    groups: tuple[DeviceGroup, ...] = Field(min_length=1)
    tiers: tuple[LinkTier, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_domains(cls, given: Any) -> Any:
        """Lets a description leave out the domains that follow from the number of devices."""
        if not isinstance(given, Mapping) or not isinstance(given.get("groups"), list | tuple):
            return given
        num_devices = _count_devices(given["groups"])
        tiers = given.get("tiers")
        if num_devices is None or not isinstance(tiers, list | tuple):
            return given
        nodes = [_raw(group).get("devices_per_node") for group in given["groups"]]
        whole = {node for node in nodes if isinstance(node, int) and node > 0}
        largest = max(whole, default=None)
        groups = given["groups"]
        if len(whole) > 1 and len(tiers) > 1 and _follows_nodes(tiers[0]):
            groups = [_with_own_node(group, tiers[0], largest) for group in groups]
        return {**given, "groups": groups, "tiers": filled_tiers(tiers, num_devices, largest)}

    @model_validator(mode="after")
    def _reachable(self) -> "ClusterSpec":
        check_num_devices(self.num_devices)
        _check_rising(self.tiers, "/cluster/tiers")
        last = self.tiers[-1]
        if last.devices_per_domain < self.num_devices:
            detail = (
                f"the outermost tier {last.name!r} joins {last.devices_per_domain} of {self.num_devices} "
                f"devices; widen it or add a tier that joins them all"
            )
            raise InvalidCluster(detail, pointer="/cluster/tiers")
        if len(self.groups) > 1:
            check_groups(self)
        return self

    @property
    def num_devices(self) -> int:
        """Devices in use over all groups."""
        return sum(group.num_devices for group in self.groups)

    @property
    def device(self) -> DeviceSpec:
        """The device of the first group."""
        return self.device_of(0)

    @property
    def is_homogeneous(self) -> bool:
        """Whether every group has the same device."""
        return all(group.device == self.groups[0].device for group in self.groups)

    @property
    def is_mixed(self) -> bool:
        """Whether some groups differ in what a rank sees: device, node, or the tiers inside the group."""
        first = self.groups[0]
        return len(self.groups) > 1 and not all(
            not group.tiers
            and (group.device, group.devices_per_node) == (first.device, first.devices_per_node)
            for group in self.groups
        )

    @property
    def group_names(self) -> tuple[str, ...]:
        """What strategies call the groups: their names, else those of their devices, numbered from the second on."""
        names: list[str] = []
        for group in self.groups:
            device = group.device
            name = group.name or (device if isinstance(device, str) else device.name)
            same = sum(one == name or one.startswith(f"{name}-") for one in names)
            names.append(name if group.name or name not in names else f"{name}-{same + 1}")
        return tuple(names)

    def device_of(self, group: int) -> DeviceSpec:
        """The device of a group; its name must have been resolved to a description."""
        device = self.groups[group].device
        if isinstance(device, str):
            detail = f"device {device!r} is only a name; load the cluster with cost_models.profiles"
            raise InvalidCluster(detail, pointer=f"/cluster/groups/{group}/device")
        return device

    def tiers_of(self, group: int) -> tuple[LinkTier, ...]:
        """The tiers that a group sees, its own inner ones first."""
        own = self.groups[group].tiers
        return own + self.tiers[len(own) :]

    def tier_for_span(self, span: int) -> int:
        """Index of the innermost tier that holds every aligned block of `span` consecutive ranks.

        A block that straddles two domains pays the next tier: 3 ranks on nodes of 8 (ranks 6 to 8) do.
        """
        for index, tier in enumerate(self.tiers[:-1]):
            domain = tier.devices_per_domain
            if span <= domain and (domain % span == 0 or self.num_devices <= domain):
                return index
        return len(self.tiers) - 1

    def with_devices(self, num_devices: int) -> "ClusterSpec":
        """The same kind of cluster with another number of devices, where there is one group to resize."""
        check_num_devices(num_devices)
        if len(self.groups) > 1:
            detail = (
                f"{self.name} has {len(self.groups)} device groups, so {num_devices} devices are ambiguous; "
                f"give each group its own nodes"
            )
            raise InvalidCluster(detail, pointer="/cluster/groups")
        group = self.groups[0].with_devices(num_devices)
        tiers = [tier.model_dump() for tier in self.tiers]
        tiers[-1].pop("devices_per_domain")
        return ClusterSpec(
            name=self.name,
            groups=(group,),
            tiers=filled_tiers(tiers, num_devices, group.devices_per_node),
        )


def check_num_devices(num_devices: int) -> None:
    """Refuses a number of devices that no cluster has."""
    if num_devices < 1:
        detail = f"a cluster of {num_devices} devices; give at least 1"
        raise InvalidCluster(detail, pointer="/cluster/devices")
    if num_devices > MAX_DEVICES:
        detail = f"a cluster of {num_devices:,} devices; give at most {MAX_DEVICES:,}"
        raise InvalidCluster(detail, pointer="/cluster/devices")


def check_groups(cluster: "ClusterSpec") -> None:
    """Refuses groups that share a name, or whose links inside do not go together with the cluster's."""
    names = cluster.group_names
    for name in names:
        if names.count(name) > 1:
            detail = f"{names.count(name)} device groups are called {name!r}; give each a name of its own"
            raise InvalidCluster(detail, pointer="/cluster/groups")
    smallest = min(group.devices_per_node for group in cluster.groups)
    shared = cluster.tiers[0]
    for name, group in zip(names, cluster.groups, strict=True):
        if len(group.tiers) >= len(cluster.tiers):
            detail = (
                f"group {name!r} has {len(group.tiers)} tiers of its own and the cluster {len(cluster.tiers)}, so "
                f"nothing joins it with the others; leave at least the outermost tier to the cluster"
            )
            raise InvalidCluster(detail, pointer="/cluster/groups/tiers")
        if group.tiers:
            _check_rising(group.tiers, "/cluster/groups/tiers")
        per_node = group.devices_per_node
        joins_nodes = any(each.devices_per_node == shared.devices_per_domain for each in cluster.groups)
        if not group.tiers and smallest <= per_node < shared.devices_per_domain and joins_nodes:
            detail = (
                f"tier {shared.name!r} joins {shared.devices_per_domain} devices, but a node of group {name!r} has "
                f"{per_node}; leave devices_per_domain out (a node each), or give that group tiers of its own"
            )
            raise InvalidCluster(detail, pointer="/cluster/tiers")


def _check_rising(tiers: tuple[LinkTier, ...], pointer: str) -> None:
    for inner, outer in pairwise(tiers):
        if outer.devices_per_domain < inner.devices_per_domain:
            detail = (
                f"tier {outer.name!r} joins {outer.devices_per_domain} devices, fewer than the "
                f"{inner.devices_per_domain} of {inner.name!r} inside it; order the tiers from inside out"
            )
            raise InvalidCluster(detail, pointer=pointer)


def _raw(group: Any) -> Mapping[str, Any]:
    """A group as plain data; empty where it is malformed."""
    found = group.model_dump() if isinstance(group, DeviceGroup) else group
    return found if isinstance(found, Mapping) else {}


def _follows_nodes(tier: Any) -> bool:
    """Whether a raw tier leaves its domain to the nodes."""
    return isinstance(tier, Mapping) and not {"devices_per_domain", "physical_devices_per_domain"} & set(tier)


def _with_own_node(group: Any, tier: Mapping[str, Any], largest: int | None) -> Any:
    """A raw group whose node differs from the largest gets the innermost tier with its own node as domain."""
    raw = _raw(group)
    if not raw or raw.get("tiers") or raw.get("devices_per_node") == largest:
        return group
    return {**raw, "tiers": [{**tier, "devices_per_domain": raw.get("devices_per_node")}]}


def _count_devices(groups: list[Any] | tuple[Any, ...]) -> int | None:
    """Devices of groups that may still be raw input; None where that input is malformed."""
    total = 0
    for group in groups:
        nodes, per_node, devices = (_raw(group).get(key) for key in ("nodes", "devices_per_node", "devices"))
        if isinstance(devices, int):
            total += devices
        elif isinstance(nodes, int) and isinstance(per_node, int):
            total += nodes * per_node
        else:
            return None
    return total
