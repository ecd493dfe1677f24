"""GPU, node size and interconnect as a source names them -> ClusterSpec."""

import json
import re
from functools import lru_cache
from typing import Any, Final

from cost_models.profiles import cluster_from_spec, load_preset
from cost_models.specs.cluster import ClusterSpec
from planner.validation.rows import Run, Unusable

PRESETS: Final = (
    ("A100-SXM-80GB", "dgx-a100"),
    ("A100-SXM-40GB", "dgx-a100-40"),
    ("A100-PCIE", "a100-pcie"),
    ("A800", "hgx-a800"),
    ("H100-96GB", "dgx-h100"),
    ("H100-SXM", "dgx-h100"),
    ("H100-PCIE", "h100-pcie"),
    ("H800", "dgx-h800"),
    ("H200", "dgx-h200"),
    ("GB200", "gb200-nvl72"),
    ("GB300", "gb300-nvl72"),
    ("B200", "dgx-b200"),
    ("B300", "dgx-b300"),
    ("V100-SXM2-32GB", "dgx-1"),
    ("V100-SXM2-16GB", "dgx-1-16"),
    ("V100-SXM3-32GB", "dgx-2"),
    ("MI250X", "mi250x"),
    ("MI300X", "mi300x"),
    ("MI325X", "mi325x"),
    ("MI355X", "mi355x"),
    ("RTX 4090", "rtx-4090"),
    ("L40S", "l40s"),
    ("A10G", "a10g"),
    ("A100", "dgx-a100"),
    ("H100", "dgx-h100"),
    ("V100", "dgx-1"),
)
"""First match of the GPU's name."""

VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "H100-96GB": {
        "capacity_bytes": (102.0e9, "bytes", "the run's table: H100 with 96 GB of HBM2e"),
        "memory_bytes_per_s": (2.4e12, "bytes/s", "the run's table: HBM2e at 2.4 TB/s"),
        "power_w": (500.0, "W", "the run's table: limited to 500 W"),
    },
}
"""Devices that differ from their preset's in the named figures."""

STATED_NODE_LINKS: Final = re.compile(r"(\d+)x ?(?:Omni-Path )?(\d+) Gb/s (?:RoCE )?per node")
STATED_NODE_RATE: Final = re.compile(r"(\d+) Gb/s RoCE per node")
GIGABIT: Final = 1e9 / 8


def cluster_of(run: Run) -> ClusterSpec:
    """The cluster of a run; raises Unusable for GPUs that no preset describes."""
    gpu = run.text("gpu")
    found = next((preset for part, preset in PRESETS if part.lower() in gpu.lower()), None)
    if found is None:
        raise Unusable(f"GPU {gpu[:60]} is not in the catalog")
    variant = next((name for name in VARIANTS if name in gpu), "")
    per_node = run.whole("gpus_per_node", 8)
    return _build(found, run.whole("n_gpus"), per_node, variant, run.text("interconnect"))


@lru_cache(maxsize=512)
def _build(preset: str, devices: int, per_node: int, variant: str, interconnect: str) -> ClusterSpec:
    plain = load_preset(preset, devices)
    usual = load_preset(preset).groups[0].devices_per_node
    outer = _outer_tier(interconnect, per_node)
    if (per_node == usual or devices <= per_node) and not variant and not outer:
        return plain
    raw = json.loads(plain.model_dump_json())
    raw["name"] = f"{preset}, {per_node} a node"
    group, tiers = raw["groups"][0], raw["tiers"]
    group |= {"devices_per_node": per_node, "nodes": -(-devices // per_node), "devices": devices}
    if tiers[0]["devices_per_domain"] == usual:
        tiers[0]["devices_per_domain"] = per_node
    for key, (value, unit, source) in VARIANTS.get(variant, {}).items():
        group["device"][key] = {"value": value, "unit": unit, "kind": "datasheet", "source": source}
    if outer and len(tiers) > 1:
        tiers[-1] |= outer
    tiers[-1]["devices_per_domain"] = devices
    tiers[0]["devices_per_domain"] = min(tiers[0]["devices_per_domain"], max(devices, 1))
    return cluster_from_spec(raw)


def _outer_tier(interconnect: str, per_node: int) -> dict[str, Any]:
    """The network between nodes where the source states or measured another than the preset's."""
    links = STATED_NODE_LINKS.search(interconnect)
    if links:
        rate = float(links[1]) * float(links[2]) * GIGABIT / per_node
        return _tier("omnipath" if "Omni-Path" in links[0] else "roce", rate, "datasheet", links[0])
    whole = STATED_NODE_RATE.search(interconnect)
    return _tier("roce", float(whole[1]) * GIGABIT / per_node, "datasheet", whole[0]) if whole else {}


def _tier(name: str, rate: float, kind: str, source: str) -> dict[str, Any]:
    figure = {"value": rate, "unit": "bytes/s", "kind": kind, "source": f"the run's table: {source}"}
    return {"name": name, "bytes_per_s": figure, "shared_by": 1, "oversubscription": 1.0}
