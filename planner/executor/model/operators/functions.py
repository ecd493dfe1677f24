"""Activation functions by the names that model configs use."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional


def _relu_squared(x: Tensor) -> Tensor:
    return functional.relu(x).square()


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


_TANH_GELU = partial(functional.gelu, approximate="tanh")

FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_new": _TANH_GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "quick_gelu": _quick_gelu,
    "relu": functional.relu,
    "relu2": _relu_squared,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
"""All tanh forms of GELU are one function (Hendrycks and Gimpel 2016, equation 2)."""
