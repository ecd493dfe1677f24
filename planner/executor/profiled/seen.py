"""Which device this machine has, asked in a process of its own: the planner's loads no torch."""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.profiles import list_devices
from cost_models.profiles.catalog import HOST_DEVICE
from cost_models.profiles.device_file import stand_in

_ASK: Final = """
import json, torch
from cost_models.profiler.machine import device_name, machine
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
device = torch.device("cuda" if count else "cpu")
print(json.dumps({"name": device_name(device), "count": count, "facts": machine(device).facts}))
"""
PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """The device by its profiles' name; `count` accelerators, 0 where it is the host's processor."""

    name: str
    count: int
    capability: str


def seen_device() -> SeenDevice:
    """The device of this machine; raises BadInput where torch is not installed or does not run."""
    try:
        found = subprocess.run(
            [sys.executable, "-c", _ASK], capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        values: dict[str, Any] = json.loads(found.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError, subprocess.TimeoutExpired):
        raise BadInput(
            "torch cannot be asked for this machine's device; install the extra `torch`, then see planner profile"
        ) from None
    return SeenDevice(values["name"], int(values["count"]), str(values["facts"].get("capability", "")))


def cluster_of_device(device: SeenDevice) -> dict[str, Any] | str:
    """One device of this machine as a cluster: questions are checked against it. A device outside the catalog is
    checked as one of its architecture."""
    if device.count == 0:
        return f"{HOST_DEVICE}:1"
    name = device.name if device.name in list_devices() else stand_in(device.capability)
    link = {"bytes_per_s": 1e10, "latency_s": 1e-5}
    group = {"device": name, "nodes": 1, "devices_per_node": 1}
    spec = {"name": "this machine", "groups": [group], "tiers": [{"name": "pcie", **link}]}
    return {"kind": "spec", "spec": spec}
