"""All-gather and reduce-scatter along a dimension, and each as the other's gradient."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.torch_names import GATHER, REDUCE_SCATTER


def gather(x: Tensor, group: dist.ProcessGroup, dim: int = 0) -> Tensor:
    """Every rank's x one after the other along a dimension; gradients are summed and come back to their rank."""
    found: Tensor = _Gather.apply(x, group, dim)  # type: ignore[no-untyped-call]
    return found


def scatter(x: Tensor, group: dist.ProcessGroup, dim: int = 0) -> Tensor:
    """The sum over ranks of this rank's equal part along a dimension; gradients are gathered."""
    found: Tensor = _Scatter.apply(x, group, dim)  # type: ignore[no-untyped-call]
    return found


def gathered(x: Tensor, group: dist.ProcessGroup, dim: int = 0) -> Tensor:
    """Every rank's x one after the other along a dimension; no gradient."""
    size = group.size()
    found = x.new_empty((size * x.shape[0], *x.shape[1:]))
    GATHER(found, x.contiguous(), group=group)
    if dim == 0:
        return found
    # Where all dimensions before it have one element, ranks are already in order, and this is a view.
    return found.view(size, *x.shape).movedim(0, dim).flatten(dim, dim + 1)


def reduced(x: Tensor, group: dist.ProcessGroup, dim: int = 0) -> Tensor:
    """The sum over ranks of this rank's equal part along a dimension; no gradient."""
    size = group.size()
    length = x.shape[dim] // size
    divided = x.reshape(*x.shape[:dim], size, length, *x.shape[dim + 1 :])
    by_rank = divided.movedim(dim, 0).contiguous()
    out = x.new_empty(by_rank.shape[1:])
    REDUCE_SCATTER(out, by_rank.flatten(0, 1), group=group)
    return out


class _Gather(torch.autograd.Function):
    """All-gather forward, reduce-scatter backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup, dim: int) -> Tensor:
        ctx.where = (group, dim)
        return gathered(x, group, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return reduced(gradients[0], *ctx.where), None, None


class _Scatter(torch.autograd.Function):
    """Reduce-scatter forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup, dim: int) -> Tensor:
        ctx.where = (group, dim)
        return reduced(x, group, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return gathered(gradients[0], *ctx.where), None, None
