"""Peak memory of one rank during one step: what torch allocated on a GPU, resident bytes above a baseline on a CPU."""

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.utils.checkpoint

_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"  # proc(5): reset the peak resident set size to the current one


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes of one rank at the peak of one step; `reserved_bytes` is what torch's allocator held (GPU)."""

    allocated_bytes: float
    reserved_bytes: float


class MemoryMeter:
    """Measures from one `reset` to the next `sample`; the baseline is what the process held when it was made."""

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is that of the run's matrix multiplications."""
        self._device = device
        self._baseline = 0.0
        if device.type == "cpu":
            warm_up(torch.float32)
            warm_up(dtype)
            trim()
            self._baseline = resident_bytes("VmRSS")

    def reset(self) -> None:
        """Start a new step: its peak begins at what is held now."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        elif _CLEAR_REFS.exists():
            try:
                _CLEAR_REFS.write_text(_RESET_PEAK)
            except OSError:  # containers may forbid it; the peak is then that of the whole run
                return

    def sample(self) -> MemorySample:
        """The peak since the last reset."""
        if self._device.type == "cuda":
            allocated = float(torch.cuda.max_memory_allocated(self._device))
            return MemorySample(allocated, float(torch.cuda.max_memory_reserved(self._device)))
        peak = resident_bytes("VmHWM") - self._baseline
        return MemorySample(peak, peak)


def warm_up(dtype: torch.dtype) -> None:
    """Load what the first step loads (libraries, thread pools, optimizers), and give freed memory back.

    A small training step of its own: none of this belongs to the model.
    """
    width = 128
    layer = torch.nn.Linear(width, width, dtype=dtype)
    optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
    x = torch.ones(1, 1, width, width, dtype=dtype, requires_grad=True)
    attended = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    hidden = torch.utils.checkpoint.checkpoint(layer, attended, use_reentrant=False)
    loss = torch.nn.functional.cross_entropy(
        hidden.float().view(-1, width), torch.zeros(width, dtype=torch.int64)
    )
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.get_total_norm([x.grad] if x.grad is not None else [])
    optimizer.step()


def trim() -> None:
    """Give freed memory back to the system, where the C library can."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def resident_bytes(key: str) -> float:
    """`VmRSS` or `VmHWM` of this process in bytes; 0 where the system does not say."""
    if not _STATUS.exists():
        return 0.0
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return float(rest.split()[0]) * 1024.0  # the kernel writes kB and means 1024 bytes
    return 0.0
