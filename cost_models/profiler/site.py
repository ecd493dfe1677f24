"""Where cases run: a device, a precision, and how many processes work at the same time."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from cost_models.operators.base import Style

DTYPES: Final = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Site:
    """A device and a precision; `processes` measure side by side (the cores of a CPU)."""

    device: torch.device
    precision: str
    processes: int = 1

    @property
    def dtype(self) -> torch.dtype:
        """Of matrix operands."""
        return DTYPES[self.precision]

    @property
    def element_bytes(self) -> float:
        """Bytes of one."""
        return float(self.dtype.itemsize)

    @property
    def style(self) -> Style:
        """How plain torch runs operators: fused norms, activations apart."""
        return Style(
            fused_activation=False, fused_rope=False, compute_bytes=self.element_bytes, eager_loss=True
        )

    def random(self, *shape: int, grad: bool = False) -> Tensor:
        """A tensor of numbers from -0.5 to 0.5."""
        values = torch.rand(shape, device=self.device, dtype=self.dtype)
        return values.sub_(0.5).requires_grad_(grad)
