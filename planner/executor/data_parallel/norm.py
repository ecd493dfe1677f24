"""The norm of all gradients, over every mesh, each parameter once, and clipping by it."""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

EPSILON = 1e-6
"""Keeps the scale finite, as torch.nn.utils.clip_grad_norm_ does."""


BLOCK = 16_384
"""Numbers whose squares are added in fp32."""


def global_norm(
    gradients: Sequence[Tensor], groups: Sequence[dist.ProcessGroup], device: torch.device
) -> float:
    """L2 norm over the gradients of all ranks of the groups; each rank passes what it alone counts."""
    return math.sqrt(summed(square_sum(gradients, device), groups).item())


def square_sum(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    """Sum of squares of this rank's gradients, an fp64 scalar: norms of blocks in fp32, their squares in fp64."""
    squares = [_square_sum(gradient) for gradient in gradients if gradient.numel()]
    total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
    return total.to(device)


def summed(total: Tensor, groups: Sequence[dist.ProcessGroup]) -> Tensor:
    """The sum over the ranks of one group after the other, in place; collective."""
    for group in groups:
        if group.size() > 1:
            dist.all_reduce(total, group=group)
    return total


def _square_sum(gradient: Tensor) -> Tensor:
    """Sum of squares in fp64 from fp32 norms of blocks; one fp32 sum of 40 million is off by 0.3 % on a CPU."""
    flat = gradient.reshape(-1)
    whole = flat.numel() // BLOCK * BLOCK
    blocks = torch.linalg.vector_norm(flat[:whole].view(-1, BLOCK), dim=1, dtype=torch.float32)
    rest = torch.linalg.vector_norm(flat[whole:], dtype=torch.float32)
    total: Tensor = blocks.double().square().sum() + rest.double().square()
    return total


def clip(gradients: Sequence[Tensor], norm: float, max_norm: float) -> None:
    """Scale all gradients of this rank so that their global norm is at most `max_norm`."""
    scale = max_norm / (norm + EPSILON)
    held = [gradient for gradient in gradients if gradient.numel()]
    if scale < 1.0 and held:
        torch._foreach_mul_(held, scale)
