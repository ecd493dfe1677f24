"""Link tiers: what joins devices, from the inside out, and the domains that follow from a number of devices."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from cost_models.specs.base import Frozen
from cost_models.specs.device import BytesPerSecond, Seconds

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

    def within(self, num_devices: int) -> "LinkTier":
        """The same tier as a group of `num_devices` sees it: its domain by the filling rule, or the group."""
        physical = self.physical_devices_per_domain
        domain = filled_domain(physical, num_devices) if physical else self.devices_per_domain
        return self.model_copy(update={"devices_per_domain": min(domain, num_devices)})


Raw = list[Any] | tuple[Any, ...]


def filled_tiers(
    tiers: Raw, num_devices: int, devices_per_node: int | None = None, *, own: bool = False
) -> tuple[Any, ...]:
    """Tiers, raw or not, with every domain given that follows from the number of devices.

    By the filling rule where there is one; else the innermost joins a node, and the outermost all devices. `own`
    tiers of a device group have further ones outside them.
    """
    filled: list[Any] = []
    inner, count = 1, len(tiers)
    for index, tier in enumerate(tiers):
        raw = tier
        if isinstance(tier, Mapping):
            physical = tier.get("physical_devices_per_domain")
            if isinstance(physical, int) and physical > 0:
                raw = {**tier, "devices_per_domain": filled_domain(physical, num_devices)}
            elif "devices_per_domain" not in tier:
                if index == 0 and (own or count > 1) and devices_per_node is not None:
                    raw = {**tier, "devices_per_domain": devices_per_node}
                elif index == count - 1:
                    raw = {**tier, "devices_per_domain": max(num_devices, inner)}
        domain = raw.devices_per_domain if isinstance(raw, LinkTier) else get(raw, "devices_per_domain")
        inner = domain if isinstance(domain, int) else inner
        filled.append(raw)
    return tuple(filled)


def get(raw: Any, key: str) -> Any:
    """A key of raw input, None where that is no mapping."""
    return raw.get(key) if isinstance(raw, Mapping) else None
