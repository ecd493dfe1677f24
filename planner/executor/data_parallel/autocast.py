"""A module whose forward runs under autocast."""

from typing import Any

import torch
from torch import nn


class Autocast(nn.Module):
    """Runs `inner` with matrix multiplications in a lower precision; parameters keep theirs."""

    def __init__(self, inner: nn.Module, device_type: str, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = inner
        self.device_type = device_type
        self.dtype = dtype

    @classmethod
    def around(cls, inner: nn.Module, device_type: str, dtype: torch.dtype) -> nn.Module:
        """The module under autocast, or as it is where the dtype is fp32."""
        return inner if dtype is torch.float32 else cls(inner, device_type, dtype)

    def forward(self, *args: Any) -> Any:
        """What `inner` returns."""
        with torch.autocast(self.device_type, self.dtype):
            return self.inner(*args)
