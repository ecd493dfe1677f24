"""Where a rank stands in its context-parallel group, which divides the positions of every sequence."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.positions import Run, context_runs, positions_of


@dataclass(frozen=True, slots=True)
class ContextParallel:
    """One rank of a group; `kind` is ring, allgather or ulysses. The default is no group at all."""

    group: dist.ProcessGroup | None = None
    size: int = 1
    rank: int = 0
    kind: str = "ring"

    @property
    def ranks(self) -> dist.ProcessGroup:
        """The process group; only where size > 1."""
        if self.group is None:
            raise RuntimeError(f"context parallel of size {self.size} has no group; give one")
        return self.group

    def runs(self, own_length: int, rank: int | None = None) -> tuple[Run, ...]:
        """Runs of positions that a rank holds (None: this one), from the number that each holds."""
        return context_runs(self.kind, self.size, self.rank if rank is None else rank, own_length * self.size)

    def positions(self, own_length: int) -> Tensor:
        """Positions that this rank holds."""
        return torch.tensor(positions_of(self.runs(own_length)), dtype=torch.int64)


def heads_to_positions(x: Tensor, context: ContextParallel) -> Tensor:
    """[B, S / cp, features] -> [B, S, features / cp]: all positions of the rank's share of the heads (Ulysses)."""
    found: Tensor = _Swap.apply(x, context, True)  # type: ignore[no-untyped-call]
    return found


def positions_to_heads(x: Tensor, context: ContextParallel) -> Tensor:
    """[B, S, features / cp] -> [B, S / cp, features]: the way back."""
    found: Tensor = _Swap.apply(x, context, False)  # type: ignore[no-untyped-call]
    return found


class _Swap(torch.autograd.Function):
    """All-to-all over heads and positions; its gradient goes the other way (Jacobs et al. 2023, section 3.1)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, context: ContextParallel, outward: bool) -> Tensor:
        ctx.context, ctx.outward = context, outward
        return (_outward if outward else _inward)(x, context)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        return (_inward if ctx.outward else _outward)(gradients[0], ctx.context), None, None


def _outward(x: Tensor, context: ContextParallel) -> Tensor:
    batch, length = x.shape[:2]
    by_heads = x.view(batch, length, context.size, -1).permute(2, 0, 1, 3)
    return _sent(by_heads, context).transpose(0, 1).reshape(batch, context.size * length, -1)


def _inward(x: Tensor, context: ContextParallel) -> Tensor:
    batch, length, width = x.shape
    by_positions = x.view(batch, context.size, -1, width).transpose(0, 1)
    return _sent(by_positions, context).permute(1, 2, 0, 3).reshape(batch, length // context.size, -1)


def _sent(parts: Tensor, context: ContextParallel) -> Tensor:
    """parts[r] goes to rank r; found[r] comes from it."""
    found = torch.empty_like(parts, memory_format=torch.contiguous_format)
    dist.all_to_all_single(found, parts.contiguous(), group=context.ranks)
    return found
