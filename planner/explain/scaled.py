"""The same situation with one resource of its hardware made better: more FLOP/s, bandwidth, memory, or nodes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from cost_models.errors import BadInput
from cost_models.specs.cluster import ClusterSpec, DeviceGroup, LinkTier
from cost_models.specs.device import DeviceSpec, Figure
from cost_models.units import GIGA
from planner.situation import Situation, situate

MORE: Final = 1.1
"""By how much a rate is raised: 10 %."""
MORE_BYTES: Final = 8.0 * GIGA
"""Memory added to every device, bytes."""


@dataclass(frozen=True, slots=True)
class Better:
    """One improvement: its key (`flops`, `memory_bandwidth`, `link:NAME`, `memory`, `node`), in words, and what is
    then."""

    key: str
    name: str
    situation: Situation


def faster_resources(situation: Situation) -> Iterator[Better]:
    """Each rate of the hardware raised by 10 %, one at a time: FLOP/s, memory bandwidth, every link tier."""
    cluster = situation.cluster
    yield _with(situation, _devices(cluster, _more_flops), "flops", "+10 % FLOP/s")
    yield _with(
        situation, _devices(cluster, _more_memory_bandwidth), "memory_bandwidth", "+10 % memory bandwidth"
    )
    for name in dict.fromkeys(_tier_names(cluster)):
        yield _with(situation, _faster_tier(cluster, name), f"link:{name}", f"+10 % bandwidth of {name}")


def more_memory(situation: Situation) -> Better:
    """Every device with 8 GB more memory."""
    return _with(situation, _devices(situation.cluster, _more_capacity), "memory", "+8 GB of memory a device")


def one_more_node(situation: Situation) -> Better | None:
    """One node more, or one device more where a single node is not full; None where there are several groups."""
    cluster = situation.cluster
    group = cluster.groups[0]
    if len(cluster.groups) > 1:
        return None
    added = group.devices_per_node if cluster.num_devices >= group.devices_per_node else 1
    try:
        larger = cluster.with_devices(cluster.num_devices + added)
        return _with(situation, larger, "node", f"one more node ({larger.num_devices:,} devices)")
    except BadInput:
        return None


def _with(situation: Situation, cluster: ClusterSpec, key: str, name: str) -> Better:
    return Better(key, name, situate(situation.model, cluster, situation.job_request))


def _raised(figure: Figure, factor: float = MORE, added: float = 0.0) -> Figure:
    return figure.model_copy(update={"value": figure.value * factor + added, "kind": "derived"})


def _more_flops(device: DeviceSpec) -> DeviceSpec:
    """Its power limit grows with its peaks: a device that only promises more would lower its clock for it."""
    peaks = {name: _raised(figure) for name, figure in device.peak_flops.items()}
    faster = {
        "peak_flops": peaks,
        "vector_flops": _raised(device.vector_flops),
        "power_w": _raised(device.power_w),
    }
    return device.model_copy(update=faster)


def _more_memory_bandwidth(device: DeviceSpec) -> DeviceSpec:
    return device.model_copy(update={"memory_bytes_per_s": _raised(device.memory_bytes_per_s)})


def _more_capacity(device: DeviceSpec) -> DeviceSpec:
    return device.model_copy(update={"capacity_bytes": _raised(device.capacity_bytes, 1.0, MORE_BYTES)})


def _devices(cluster: ClusterSpec, change: Callable[[DeviceSpec], DeviceSpec]) -> ClusterSpec:
    groups = [
        group.model_copy(update={"device": change(cluster.device_of(index))})
        for index, group in enumerate(cluster.groups)
    ]
    return cluster.model_copy(update={"groups": tuple(groups)})


def _tier_names(cluster: ClusterSpec) -> Iterator[str]:
    yield from (tier.name for group in cluster.groups for tier in group.tiers)
    yield from (tier.name for tier in cluster.tiers)


def _faster_tier(cluster: ClusterSpec, name: str) -> ClusterSpec:
    def faster(tiers: tuple[LinkTier, ...]) -> tuple[LinkTier, ...]:
        return tuple(
            tier.model_copy(update={"bytes_per_s": _raised(tier.bytes_per_s)}) if tier.name == name else tier
            for tier in tiers
        )

    groups: tuple[DeviceGroup, ...] = tuple(
        group.model_copy(update={"tiers": faster(group.tiers)}) for group in cluster.groups
    )
    return cluster.model_copy(update={"groups": groups, "tiers": faster(cluster.tiers)})
