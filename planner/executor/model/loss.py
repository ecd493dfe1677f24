"""The loss as a SUM over valid positions: cross entropy over logits whose vocabulary may be divided over ranks."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from planner.executor.model.tensor_parallel import TensorParallel

IGNORED = -100
"""Target of positions that do not count (torch's ignore_index)."""

SLICE_ELEMENTS = 1 << 24
"""Logits that the fused loss holds in fp32 at a time (64 MiB)."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The tensor-parallel group, the columns of the padded vocabulary that exist (0: all), and whether the logits'
    own storage holds their gradient."""

    tp: TensorParallel
    vocab_size: int = 0
    fused: bool = False


def token_loss_sum(
    logits: Tensor,
    targets: Tensor,
    tp: TensorParallel | None = None,
    vocab_size: int = 0,
    *,
    fused: bool = False,
) -> Tensor:
    """Sum of -log softmax at the targets, in fp32.

    logits [..., V / tp] of the rank, targets [...] with IGNORED where a position does not count; `vocab_size` above 0
    says how many columns of the padded vocabulary exist. Keeps one fp32 softmax from forward to backward, which the
    backward turns into the gradient in place; `fused` keeps nothing and overwrites the logits with their gradient.
    """
    settings = LossSettings(tp or TensorParallel(), vocab_size, fused)
    function = _FusedCrossEntropySum if fused else _CrossEntropySum
    found: Tensor = function.apply(logits, targets, settings)  # type: ignore[no-untyped-call]
    return found


def class_loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over samples of the cross entropy of [B, classes] logits, in fp32."""
    return functional.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=IGNORED)


@dataclass(frozen=True, slots=True)
class _Targets:
    """Which rows count, which of them have their target here, and in which of the rank's columns."""

    valid: Tensor
    here: Tensor
    column: Tensor


def _targets(targets: Tensor, columns: int, settings: LossSettings) -> _Targets:
    flat = targets.reshape(-1)
    own = flat - settings.tp.rank * columns
    valid = flat != IGNORED
    here = valid & (own >= 0) & (own < columns)
    return _Targets(valid, here, own.masked_fill(~here, 0).unsqueeze(-1))


def _existing(columns: int, settings: LossSettings) -> int:
    """Columns of the rank that are no padding."""
    if not settings.vocab_size:
        return columns
    return min(max(settings.vocab_size - settings.tp.rank * columns, 0), columns)


class _CrossEntropySum(torch.autograd.Function):
    """Vocabulary-parallel cross entropy (Shoeybi et al. 2019, section 3): small all-reduces over positions."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, settings: LossSettings) -> Tensor:
        columns = logits.shape[-1]
        rows = logits.reshape(-1, columns)
        softmax = torch.empty(rows.shape, dtype=torch.float32, device=rows.device).copy_(rows)
        softmax[:, _existing(columns, settings) :] = float("-inf")
        at = _targets(targets, columns, settings)
        softmax.sub_(_reduced(softmax.amax(-1), settings.tp, dist.ReduceOp.MAX).unsqueeze(-1))
        chosen = softmax.gather(-1, at.column).squeeze(-1).masked_fill(~at.here, 0.0)
        chosen, total = _summed(chosen, softmax.exp_().sum(-1), settings.tp)
        softmax.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, at.column, at.here, at.valid)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return (total.log() - chosen).masked_fill(~at.valid, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        softmax, column, here, valid = ctx.saved_tensors
        softmax.scatter_add_(-1, column, -here.to(torch.float32).unsqueeze(-1))
        softmax.mul_((valid.to(torch.float32) * gradients[0]).unsqueeze(-1))
        return softmax.view(ctx.shape).to(ctx.dtype), None, None


class _FusedCrossEntropySum(torch.autograd.Function):
    """The same, slice by slice; the forward pass leaves the gradient of every row in the logits' own storage."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, settings: LossSettings) -> Tensor:
        columns = logits.shape[-1]
        # Past autograd's version counter: what made the logits keeps no copy of them (no soft cap stands between).
        rows = logits.data.view(-1, columns)
        rows[:, _existing(columns, settings) :] = float("-inf")
        at = _targets(targets, columns, settings)
        highest = _reduced(rows.amax(-1).float(), settings.tp, dist.ReduceOp.MAX)
        chosen = rows.gather(-1, at.column).squeeze(-1).float() - highest
        slices = _slices(rows)
        total = torch.cat([_exponentials(rows[few], highest[few]).sum(-1) for few in slices])
        chosen, total = _summed(chosen.masked_fill(~at.here, 0.0), total, settings.tp)
        for few in slices:
            rows[few] = _exponentials(rows[few], highest[few]).div_(total[few].unsqueeze(-1))
        rows.scatter_add_(-1, at.column, -at.here.to(rows.dtype).unsqueeze(-1))
        rows.mul_(at.valid.to(rows.dtype).unsqueeze(-1))
        ctx.gradient = logits.data
        return (total.log() - chosen).masked_fill(~at.valid, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient.mul_(gradients[0]), None, None


def _slices(rows: Tensor) -> list[slice]:
    """Rows that are in fp32 at the same time."""
    few = max(SLICE_ELEMENTS // rows.shape[1], 1)
    return [slice(start, start + few) for start in range(0, rows.shape[0], few)]


def _exponentials(rows: Tensor, highest: Tensor) -> Tensor:
    """exp(row - its maximum) in fp32."""
    return rows.to(torch.float32, copy=True).sub_(highest.unsqueeze(-1)).exp_()


def _summed(chosen: Tensor, total: Tensor, tp: TensorParallel) -> tuple[Tensor, Tensor]:
    """Both sums over the ranks, in one message."""
    if tp.size == 1:
        return chosen, total
    first, second = _reduced(torch.stack((chosen, total)), tp, dist.ReduceOp.SUM).unbind(0)
    return first, second


def _reduced(x: Tensor, tp: TensorParallel, operation: Any) -> Tensor:
    if tp.size > 1:
        dist.all_reduce(x, op=operation, group=tp.group)
    return x
