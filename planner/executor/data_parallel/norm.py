"""The norm of all gradients, over every mesh, each parameter once, and clipping by it."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

EPSILON = 1e-6
"""Keeps the scale finite, as torch.nn.utils.clip_grad_norm_ does."""


def global_norm(
    gradients: Sequence[Tensor], groups: Sequence[dist.ProcessGroup], device: torch.device
) -> float:
    """L2 norm over the gradients of all ranks of the groups; each rank passes what it alone counts.

    Every tensor's norm is accumulated in fp32, and their squares are added in fp64 (fp32 on devices without it).
    """
    norms = [
        torch.linalg.vector_norm(gradient, dtype=torch.float32) for gradient in gradients if gradient.numel()
    ]
    total = torch.stack(norms).double().square().sum() if norms else torch.zeros((), dtype=torch.float64)
    total = total.to(device)
    for group in groups:
        if group.size() > 1:
            dist.all_reduce(total, group=group)
    return math.sqrt(total.item())


def clip(gradients: Sequence[Tensor], norm: float, max_norm: float) -> None:
    """Scale all gradients of this rank so that their global norm is at most `max_norm`."""
    scale = max_norm / (norm + EPSILON)
    held = [gradient for gradient in gradients if gradient.numel()]
    if scale < 1.0 and held:
        torch._foreach_mul_(held, scale)
