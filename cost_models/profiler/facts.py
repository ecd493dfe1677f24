"""Memory of a device: its total, what a process takes before its first tensor, how its allocator rounds."""

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from cost_models.profiles.measured import Point

SMALL_BYTES: Final = 1
MIDDLE_BYTES: Final = 3 * 1024**2
LARGE_BYTES: Final = 10 * 1024**2 + 1
WORKSPACE_SIDE: Final = 512
_STATUS: Final = Path("/proc/self/status")


def memory_facts(device: torch.device) -> tuple[Point, ...]:
    """Facts of memory in bytes, by name; call it before anything else runs on the device."""
    values = _cuda_facts(device) if device.type == "cuda" else _cpu_facts()
    return tuple(fact(name, value) for name, value in values.items())


def fact(name: str, value: float) -> Point:
    """One number of a profile."""
    return Point(kind="fact", name=name, features={"value": float(value)})


def _cuda_facts(device: torch.device) -> Mapping[str, float]:
    torch.zeros(1, device=device)
    free, total = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device)
    found = {"capacity_bytes": float(total), "context_bytes": float(total - free - held)}
    for name, size in (("small", SMALL_BYTES), ("middle", MIDDLE_BYTES), ("large", LARGE_BYTES)):
        _empty()
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        tensor = torch.empty(size, dtype=torch.uint8, device=device)
        found[f"allocated_for_{name}_bytes"] = float(torch.cuda.memory_allocated(device) - allocated)
        found[f"reserved_for_{name}_bytes"] = float(torch.cuda.memory_reserved(device) - reserved)
        del tensor
    before = torch.cuda.memory_allocated(device)
    x = torch.ones(WORKSPACE_SIDE, WORKSPACE_SIDE, device=device, dtype=torch.bfloat16)
    product = x @ x
    used = torch.cuda.memory_allocated(device) - before - 2 * x.numel() * x.element_size()
    del product
    return found | {"gemm_workspace_bytes": float(used)}


def _cpu_facts() -> Mapping[str, float]:
    x = torch.ones(WORKSPACE_SIDE, WORKSPACE_SIDE)
    before = resident_bytes()
    tensor = torch.ones(LARGE_BYTES, dtype=torch.uint8)
    after = resident_bytes()
    found = {"context_bytes": before, "resident_for_large_bytes": max(after - before, 0.0)}
    del tensor, x
    return found


def resident_bytes() -> float:
    """Resident bytes of this process; 0 where the system does not say."""
    if not _STATUS.exists():
        return 0.0
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) * 1024.0
    return 0.0


def _empty() -> None:
    gc.collect()
    torch.cuda.empty_cache()
