"""From a measured profile to a cluster file: what a user of a device outside the catalog plans with.

Peaks and bandwidth are what formulas need to give the measured rates back: the best measured rate over the efficiency
that the architecture's curves allow at most. Kernels that the profile holds are priced by it, whatever stands here.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.profiles.catalog import list_devices, load_device, profiles_root
from cost_models.profiles.measured import MeasuredProfile, Point

NVIDIA: Final[Mapping[int, str]] = {7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell", 12: "blackwell"}
"""Major compute capability -> architecture."""
ADA: Final = "8.9"
AMD: Final[Mapping[str, str]] = {"gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna4"}
DEFAULT_CONTEXT: Final = 5e8
HOST_LINK: Final = 2.5e10
WATTS_A_FLOP: Final = 1e-12
"""Where no profile can tell: PCIe 4.0 x16 as copies reach it, and a board that holds its clock, as measured rates have
their limit in them (1 W a TFLOP/s, cost_model.md)."""


def cluster_text(profile: MeasuredProfile, devices: int, title: str = "") -> str:
    """A cluster file of one node of such devices, as TOML; raises BadInput where too little was measured."""
    device = device_values(profile)
    link = _link(profile)
    lines = [
        f"# Written from the measured profile {profile.title}.",
        f'name = "{title or profile.manifest.device}"',
        "",
        "[[groups]]",
        "nodes = 1",
        f"devices_per_node = {devices}",
        "",
        "[groups.device]",
        *(_line(key, value) for key, value in device.items() if key != "peak_flops"),
        "",
        "[groups.device.peak_flops]",
        *(_line(key, value) for key, value in device["peak_flops"].items()),
        "",
        "[[tiers]]",
        'name = "pcie"',
        f"devices_per_domain = {devices}",
        *(_line(key, value) for key, value in link.items()),
    ]
    return "\n".join(lines) + "\n"


def device_values(profile: MeasuredProfile) -> dict[str, Any]:
    """The device table: measured figures where the profile has them, each with its source."""
    manifest = profile.manifest
    name = manifest.device
    if name in list_devices():
        raise BadInput(f"{name} is a device of the catalog; use it by its name, its profile is found by it")
    architecture = architecture_of(manifest.machine.facts.get("capability", ""))
    curves = _curves(architecture)
    source = f"measured profile {profile.title}"
    peaks = _peaks(profile, curves, source)
    if not peaks:
        raise BadInput(
            f"profile {profile.name} holds no matrix product; run planner profile with more --minutes"
        )
    widest = max(figure["value"] for figure in peaks.values())
    capacity = profile.fact("capacity_bytes") or manifest.machine.memory_bytes
    return {
        "name": name,
        "title": manifest.machine.driver_name,
        "vendor": "as its driver reports it",
        "architecture": architecture,
        "capacity_bytes": _figure(capacity, "bytes", source, "measured"),
        "memory_bytes_per_s": _figure(_bandwidth(profile, curves), "bytes/s", source),
        "vector_flops": _figure(peaks.get("fp32", {"value": widest / 8.0})["value"], "flop/s", source),
        "compute_units": _figure(
            float(manifest.machine.facts.get("compute_units", "1") or 1), "count", source, "measured"
        ),
        "power_w": _figure(
            WATTS_A_FLOP * widest, "W", "assumed; measured rates hold the power limit already"
        ),
        "context_bytes": _figure(
            profile.fact("context_bytes") or DEFAULT_CONTEXT, "bytes", source, "measured"
        ),
        "host_link_bytes_per_s": _figure(HOST_LINK, "bytes/s", "assumed; a profile does not measure it"),
        "peak_flops": peaks,
    }


def architecture_of(capability: str) -> str:
    """The architecture whose curves stand in for what was not measured."""
    for prefix, name in AMD.items():
        if capability.startswith(prefix):
            return name
    if capability == ADA:
        return "ada"
    major = capability.partition(".")[0]
    if major.isdigit():
        known = max((m for m in NVIDIA if m <= int(major)), default=7)
        return NVIDIA[known]
    return "ampere" if capability else "cpu"


def stand_in(capability: str) -> str:
    """A catalog device of the same architecture: what questions are checked against before anything is measured."""
    wanted = architecture_of(capability)
    return next(name for name in list_devices() if load_device(name).architecture == wanted)


def _peaks(profile: MeasuredProfile, curves: Mapping[str, Any], source: str) -> dict[str, dict[str, Any]]:
    """Best rate of products by precision, over the share of the peak that the curves allow."""
    best: dict[str, float] = {}
    for point in profile.of("kernel"):
        if point.name == "gemm" and point.seconds > 0.0:
            rate = point.features.get("flops", 0.0) / point.seconds
            best[point.precision] = max(best.get(point.precision, 0.0), rate)
    return {
        precision: _figure(rate / _most(curves, precision), "flop/s", source)
        for precision, rate in best.items()
    }


def _most(curves: Mapping[str, Any], precision: str) -> float:
    own = curves["gemm"].get(precision)
    share = float(own["max_efficiency"]["value"]) if own else 1.0
    return share * float(curves["scale"]["matmul"]["value"])


def _bandwidth(profile: MeasuredProfile, curves: Mapping[str, Any]) -> float:
    copies = [point for point in profile.of("kernel") if point.name == "copy" and point.seconds > 0.0]
    if not copies:
        raise BadInput(f"profile {profile.name} holds no copy; run planner profile with more --minutes")
    largest = max(copies, key=lambda point: point.features["bytes"])
    share = float(curves["memory"]["max_efficiency"]["value"]) * float(curves["scale"]["memory"]["value"])
    return largest.features["bytes"] / largest.seconds / share


def _link(profile: MeasuredProfile) -> dict[str, Any]:
    """The node's tier: as messages between two devices reached it, else assumed."""
    sends = [p for p in profile.of("collective") if p.name == "send_receive" and p.seconds > 0.0]
    if not sends:
        source = "assumed; one device was measured alone"
        return {"bytes_per_s": _figure(HOST_LINK, "bytes/s", source), "latency_s": _figure(1e-5, "s", source)}
    source = f"measured profile {profile.title}"
    large: Point = max(sends, key=lambda point: point.features["bytes"])
    rate = large.features["bytes"] / large.seconds
    latency = min(point.seconds for point in sends)
    return {"bytes_per_s": _figure(rate, "bytes/s", source), "latency_s": _figure(latency, "s", source)}


def _curves(architecture: str) -> Mapping[str, Any]:
    path: Path = profiles_root() / "efficiency" / f"{architecture}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _figure(value: float, unit: str, source: str, kind: str = "derived") -> dict[str, Any]:
    return {"value": value, "unit": unit, "kind": kind, "source": source}


def _line(key: str, value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{name} = {_text(part)}" for name, part in value.items())
        return f"{key} = {{ {inside} }}"
    return f"{key} = {_text(value)}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "/").replace('"', "'") + '"'
    return f"{value:.6g}" if isinstance(value, float) and value < 1e15 else repr(value)
