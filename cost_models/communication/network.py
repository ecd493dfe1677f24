"""The network of a cluster as numbers: per tier domain, usable bytes/s, and seconds of a hop by protocol."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from cost_models.communication.measured import MeasuredCollectives, measured_collectives
from cost_models.errors import BadInput
from cost_models.profiles import measured_profile, profiles_root
from cost_models.specs.cluster import ClusterSpec, LinkTier
from cost_models.specs.curves import FabricFile, ProtocolFigures
from cost_models.specs.device import FigureKind

Array = NDArray[np.float64]

FALLBACK_FABRIC: Final = "other"


@dataclass(frozen=True, slots=True)
class Network:
    """Tiers from the inside out (T of them) and NCCL's three protocols (P = LL, LL128, Simple).

    `rate` is one-way bytes/s of one device when all devices send at once, datasheet value over sharing and
    oversubscription; the efficiencies multiply it. `in_switch` is the efficiency of reduction in the
    innermost switches, 0 where they cannot. `kind` is the weakest kind of figure among the tiers' fabrics.
    """

    num_devices: int
    domains: NDArray[np.int64]  # (T,) devices of a domain; the last holds the cluster
    full_mesh: bool  # innermost pairs have links of their own
    rate: Array  # (T,)
    ring: Array  # (T,) fractions of `rate`
    tree: Array  # (T,)
    all_to_all: Array  # (T,)
    send_receive: Array  # (T,)
    ramp_bytes: Array  # (T,) what a link has sent when a pipelined collective is at speed
    peer_s: Array  # (T,)
    base_s: Array  # (P, T)
    share: Array  # (P, T) fraction of the bandwidth
    ring_hop_s: Array  # (P, T)
    tree_hop_s: Array  # (P, T)
    in_switch: float
    in_switch_hop_s: float
    noise: float  # of the outermost tier
    interference: Array  # (T,)
    kind: FigureKind
    measured: MeasuredCollectives | None = (
        None  # the device's own profile, for groups in the innermost domain
    )
    in_switch_fill_s: float = 0.0  # until the pipeline of a reduction in the switch is full


def network_of(cluster: ClusterSpec, *, in_switch: bool = True) -> Network:
    """The network of a cluster with its tiers' fabric files; the first group's tiers stand for all.

    Without `in_switch` no all-reduce is done in NVLink switches.
    """
    tiers = cluster.tiers_of(0)
    files = [load_fabric(tier.name) for tier in tiers]
    protocols = [(file.low_latency, file.low_latency_128, file.simple) for file in files]
    hops = np.array([t.latency_s.value * f.scale.latency.value for t, f in zip(tiers, files, strict=True)])
    architecture = cluster.device_of(0).architecture
    inner = files[0].in_switch if in_switch else None
    reduces = inner.efficiency.get(architecture) if inner is not None else None
    measured = None if cluster.is_mixed else measured_collectives(measured_profile(cluster.device_of(0).name))
    domains = [min(tier.devices_per_domain, cluster.num_devices) for tier in tiers[:-1]]
    ring = np.array([f.ring_efficiency_of(architecture) for f in files])
    return Network(
        num_devices=cluster.num_devices,
        domains=np.array([*domains, cluster.num_devices], dtype=np.int64),
        full_mesh=files[0].full_mesh,
        rate=_rates(tiers, files),
        ring=ring,
        tree=ring * np.array([f.tree_ratio.value for f in files]),
        all_to_all=np.array([f.all_to_all_efficiency.value for f in files]),
        send_receive=np.array([f.send_receive_efficiency.value for f in files]),
        ramp_bytes=np.array([f.ramp_bytes.value for f in files]),
        peer_s=np.array([f.peer_s.value for f in files]),
        base_s=_by_protocol(protocols, "base_s"),
        share=_by_protocol(protocols, "bandwidth"),
        ring_hop_s=_by_protocol(protocols, "ring_hop") * hops,
        tree_hop_s=_by_protocol(protocols, "tree_hop") * hops,
        in_switch=reduces.value if reduces is not None else 0.0,
        in_switch_hop_s=float(hops[0]) * inner.hop.value if inner is not None else 0.0,
        noise=files[-1].straggler_noise.value,
        interference=_interference(files, measured),
        kind=_weakest([f.kind for f in files]),
        measured=measured,
        in_switch_fill_s=inner.fill_s.value if inner is not None else 0.0,
    )


def _interference(files: list[FabricFile], measured: MeasuredCollectives | None) -> Array:
    """Of every tier; of the innermost as measured, where it was."""
    found = np.array([f.compute_interference.value for f in files])
    if measured is not None and measured.interference is not None:
        found[0] = measured.interference
    return found


def load_fabric(tier_name: str) -> FabricFile:
    """The fabric file whose name stands in the tier's name ("nvlink", "infiniband-spine"), else `other`."""
    folder = profiles_root() / "fabrics"
    known = sorted((path.stem for path in folder.glob("*.toml")), key=len, reverse=True)
    name = next((one for one in known if one in tier_name.lower()), FALLBACK_FABRIC)
    return _read_fabric(folder / f"{name}.toml")


@lru_cache(maxsize=64)
def _read_fabric(path: Path) -> FabricFile:
    try:
        return FabricFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValidationError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"fabric file {path.name} cannot be used: {error}; correct it") from error


def _rates(tiers: tuple[LinkTier, ...], files: list[FabricFile]) -> Array:
    """One-way bytes/s of each device with all its neighbours on the shared links sending too."""
    each = [
        tier.bytes_per_s_each(tier.shared_by) * file.scale.bandwidth.value
        for tier, file in zip(tiers, files, strict=True)
    ]
    return np.array(each)


def _by_protocol(protocols: Sequence[Sequence[ProtocolFigures]], field: str) -> Array:
    return np.array([[getattr(one, field).value for one in tier] for tier in protocols]).T


def _weakest(kinds: list[FigureKind]) -> FigureKind:
    if len(set(kinds)) == 1:
        return kinds[0]
    return "fitted" if "fitted" in kinds else "derived"
