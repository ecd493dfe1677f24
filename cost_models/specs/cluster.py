"""A cluster: groups of equal devices, and the link tiers that join them, from the inside out."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

from pydantic import Field, StrictInt, model_validator

from cost_models.errors import InvalidCluster
from cost_models.specs.base import Frozen
from cost_models.specs.device import BytesPerSecond, DeviceSpec, Seconds

MAX_DEVICES: Final = 10_000_000
"""More than any cluster planned so far; above it a number is a typing error."""


def filled_domain(physical_devices_per_domain: int, num_devices: int) -> int:
    """Devices of each equal part into which a job of `num_devices` fills a domain.

    A job that fits is one part. A multiple of the domain fills it whole; any other job takes the largest
    power of two that the domain holds, so that groups of a power of two never straddle two domains (256
    devices on NVL72 racks are 4 x 64).
    """
    if num_devices <= physical_devices_per_domain or num_devices % physical_devices_per_domain == 0:
        return physical_devices_per_domain
    return 1 << (physical_devices_per_domain.bit_length() - 1)


class LinkTier(Frozen):
    """One level of the network: the devices of a domain reach each other at this rate.

    `bytes_per_s` is what one device sends one way when it is alone on its link; `shared_by` devices share
    that link, and `oversubscription` is how much more the domain's devices can send than its switches carry.
    `physical_devices_per_domain` stands where a job fills the domain in equal parts (see `filled_domain`);
    then `devices_per_domain` follows from the number of devices.
    """

    name: str = Field(min_length=1)
    devices_per_domain: int = Field(ge=1, le=MAX_DEVICES)
    bytes_per_s: BytesPerSecond
    latency_s: Seconds
    shared_by: int = Field(default=1, ge=1)
    oversubscription: float = Field(default=1.0, ge=1.0)
    physical_devices_per_domain: int | None = Field(default=None, ge=1)

    def bytes_per_s_each(self, active: int = 1) -> float:
        """One-way bytes/s of each device when `active` of the devices sharing one link send at once."""
        return self.bytes_per_s.value / (min(max(active, 1), self.shared_by) * self.oversubscription)


class DeviceGroup(Frozen):
    """Equal nodes of equal devices; `devices` is given where the last node is only partly used.

    `host_bytes` counts a node's memory; price and power count one device (power with its share of the node).
    `source` says where host memory, price and power come from. `tiers` stand here only where the inside of
    these nodes differs from the other groups': they replace as many of the cluster's innermost tiers.
    """

    device: DeviceSpec | str
    nodes: StrictInt
    devices_per_node: StrictInt
    devices: StrictInt | None = None
    host_bytes: float = Field(default=0.0, ge=0)
    price_per_device_hour_usd: float | None = Field(default=None, ge=0)
    power_w: float | None = Field(default=None, gt=0)
    source: str = ""
    tiers: tuple[LinkTier, ...] = ()

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
        return {**given, "tiers": _filled_tiers(tiers, num_devices)}

    @model_validator(mode="after")
    def _reachable(self) -> "ClusterSpec":
        check_num_devices(self.num_devices)
        for inner, outer in pairwise(self.tiers):
            if outer.devices_per_domain < inner.devices_per_domain:
                detail = (
                    f"tier {outer.name!r} joins {outer.devices_per_domain} devices, fewer than the "
                    f"{inner.devices_per_domain} of {inner.name!r} inside it; order the tiers from inside out"
                )
                raise InvalidCluster(detail, pointer="/cluster/tiers")
        last = self.tiers[-1]
        if last.devices_per_domain < self.num_devices:
            detail = (
                f"the outermost tier {last.name!r} joins {last.devices_per_domain} of {self.num_devices} "
                f"devices; widen it or add a tier that joins them all"
            )
            raise InvalidCluster(detail, pointer="/cluster/tiers")
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
        return ClusterSpec(name=self.name, groups=(group,), tiers=_filled_tiers(tiers, num_devices))


def check_num_devices(num_devices: int) -> None:
    """Refuses a number of devices that no cluster has."""
    if num_devices < 1:
        detail = f"a cluster of {num_devices} devices; give at least 1"
        raise InvalidCluster(detail, pointer="/cluster/devices")
    if num_devices > MAX_DEVICES:
        detail = f"a cluster of {num_devices:,} devices; give at most {MAX_DEVICES:,}"
        raise InvalidCluster(detail, pointer="/cluster/devices")


def _count_devices(groups: list[Any] | tuple[Any, ...]) -> int | None:
    """Devices of groups that may still be raw input; None where that input is malformed."""
    total = 0
    for group in groups:
        raw = group.model_dump() if isinstance(group, DeviceGroup) else group
        if not isinstance(raw, Mapping):
            return None
        nodes, per_node, devices = (raw.get(key) for key in ("nodes", "devices_per_node", "devices"))
        if isinstance(devices, int):
            total += devices
        elif isinstance(nodes, int) and isinstance(per_node, int):
            total += nodes * per_node
        else:
            return None
    return total


def _get(raw: Any, key: str) -> Any:
    return raw.get(key) if isinstance(raw, Mapping) else None


def _filled_tiers(tiers: list[Any] | tuple[Any, ...], num_devices: int) -> tuple[Any, ...]:
    """Tiers with every domain given: by its filling rule, or the whole cluster for the outermost."""
    filled: list[Any] = []
    inner = 1
    for index, tier in enumerate(tiers):
        raw = tier
        if isinstance(tier, Mapping):
            physical = tier.get("physical_devices_per_domain")
            if isinstance(physical, int) and physical > 0:
                raw = {**tier, "devices_per_domain": filled_domain(physical, num_devices)}
            elif index == len(tiers) - 1 and "devices_per_domain" not in tier:
                raw = {**tier, "devices_per_domain": max(num_devices, inner)}
        domain = raw.devices_per_domain if isinstance(raw, LinkTier) else _get(raw, "devices_per_domain")
        inner = domain if isinstance(domain, int) else inner
        filled.append(raw)
    return tuple(filled)
