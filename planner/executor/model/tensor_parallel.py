"""Where a rank stands in its tensor-parallel group, and the collectives between the regions of a block.

Regions as in Megatron-LM (Shoeybi et al. 2019, section 3; with sequence parallelism Korthikanti et al. 2022, section
4.2.2). Outside tensor-parallel regions a rank holds all tokens [B, S, H], or under sequence parallelism its slice
[B, S / tp, H]; inside it holds all tokens of its share of the features.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from planner.executor.model.gathering import gather, gathered, scatter

SEQUENCE_DIM = 1
"""Dimension of the positions in [B, S, H]."""


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """One rank of a tensor-parallel group; `sequence` is sequence parallelism. The default is no group at all."""

    mesh: DeviceMesh | None = None
    size: int = 1
    rank: int = 0
    sequence: bool = False

    @property
    def group(self) -> dist.ProcessGroup:
        """The process group; only where size > 1."""
        if self.mesh is None:
            raise RuntimeError(f"tensor parallel of size {self.size} has no mesh; give one")
        return self.mesh.get_group()

    @property
    def splits_sequence(self) -> bool:
        """Whether a rank holds a slice of the positions outside tensor-parallel regions."""
        return self.sequence and self.size > 1


def mark_partial(parameter: nn.Parameter) -> None:
    """Note that each tensor-parallel rank has a partial gradient of this whole parameter (summed once a step)."""
    parameter.tensor_parallel_partial = True  # type: ignore[attr-defined]


def is_partial(parameter: nn.Parameter) -> bool:
    """Whether the gradient still has to be summed over the tensor-parallel group."""
    return getattr(parameter, "tensor_parallel_partial", False)


def local(parameter: Tensor) -> Tensor:
    """The rank's own part of a parameter; gradients flow back to it."""
    if isinstance(parameter, DTensor):
        part: Tensor = parameter.to_local()
        return part
    return parameter


def enter(x: Tensor, tp: TensorParallel) -> Tensor:
    """Into a region: all positions on every rank; the gradient is summed over the ranks."""
    if tp.size == 1:
        return x
    if tp.sequence:
        return gather(x, tp.group, SEQUENCE_DIM)
    found: Tensor = _CopyIn.apply(x, tp.group)  # type: ignore[no-untyped-call]
    return found


def leave(x: Tensor, tp: TensorParallel) -> Tensor:
    """Out of a region: partial sums of the ranks are added (and the positions divided again)."""
    if tp.size == 1:
        return x
    if tp.sequence:
        return scatter(x, tp.group, SEQUENCE_DIM)
    found: Tensor = _ReduceOut.apply(x, tp.group)  # type: ignore[no-untyped-call]
    return found


def shared_sum(x: Tensor, tp: TensorParallel) -> Tensor:
    """The sum of the ranks' x where every rank goes on with the sum in its own way: gradients are summed too."""
    if tp.size == 1:
        return x
    found: Tensor = _SumBoth.apply(x, tp.group)  # type: ignore[no-untyped-call]
    return found


def divide(x: Tensor, tp: TensorParallel) -> Tensor:
    """The rank's slice of the positions of a tensor that is equal on every rank; the gradient becomes whole again."""
    if tp.size == 1:
        return x
    found: Tensor = _Divide.apply(x, tp)  # type: ignore[no-untyped-call]
    return found


def unite(x: Tensor, tp: TensorParallel) -> Tensor:
    """The slices of all ranks; each takes the gradient of its own, as the gradients of the whole are equal."""
    if tp.size == 1:
        return x
    found: Tensor = _Unite.apply(x, tp)  # type: ignore[no-untyped-call]
    return found


def spread(x: Tensor, tp: TensorParallel) -> Tensor:
    """[B, S, features / tp] -> all features of the positions that the rank holds outside tensor-parallel regions."""
    if tp.size == 1:
        return x
    found: Tensor = _Spread.apply(x, tp)  # type: ignore[no-untyped-call]
    return found


def sequence_slice(x: Tensor, tp: TensorParallel, dim: int) -> Tensor:
    """The rank's slice of the positions of a tensor that is whole on every rank."""
    if not tp.splits_sequence:
        return x
    length = x.shape[dim] // tp.size
    return x.narrow(dim, tp.rank * length, length)


class _CopyIn(torch.autograd.Function):
    """Identity forward, sum of the gradients backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        # The gradient is a fresh product of the region's linears, so it may be summed in place.
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class _SumBoth(torch.autograd.Function):
    """Sum over ranks forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None


class _ReduceOut(torch.autograd.Function):
    """Sum over ranks forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.mark_dirty(x)
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gradients[0], None


class _Divide(torch.autograd.Function):
    """Own slice of the positions forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return _own_positions(x, tp)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return gathered(gradients[0], ctx.tp.group, SEQUENCE_DIM), None


class _Unite(torch.autograd.Function):
    """All-gather forward, own slice of the positions backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        return gathered(x, tp.group, SEQUENCE_DIM)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        return _own_positions(gradients[0], ctx.tp), None


def _own_positions(x: Tensor, tp: TensorParallel) -> Tensor:
    length = x.shape[SEQUENCE_DIM] // tp.size
    return x.narrow(SEQUENCE_DIM, tp.rank * length, length).contiguous()


class _Spread(torch.autograd.Function):
    """All features of the rank's positions forward, its features of all positions backward: all-to-all, or an
    all-gather and a cut where every rank holds all positions."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tp: TensorParallel) -> Tensor:
        ctx.tp = tp
        if not tp.sequence:
            return gathered(x, tp.group, x.dim() - 1)
        by_positions = x.view(x.shape[0], tp.size, -1, x.shape[-1]).transpose(0, 1)
        return _swapped(by_positions, tp).movedim(0, -2).flatten(-2)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        (gradient,), tp = gradients, ctx.tp
        if not tp.sequence:
            return gradient.chunk(tp.size, -1)[tp.rank].contiguous(), None
        by_features = gradient.reshape(*gradient.shape[:-1], tp.size, -1).movedim(-2, 0)
        return _swapped(by_features, tp).movedim(0, SEQUENCE_DIM).flatten(
            SEQUENCE_DIM, SEQUENCE_DIM + 1
        ), None


def _swapped(parts: Tensor, tp: TensorParallel) -> Tensor:
    """parts[r] goes to rank r; found[r] comes from it."""
    found = torch.empty_like(parts, memory_format=torch.contiguous_format)
    dist.all_to_all_single(found, parts.contiguous(), group=tp.group)
    return found
