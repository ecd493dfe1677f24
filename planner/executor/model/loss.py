"""The loss as a SUM over valid positions: cross entropy over logits whose vocabulary may be divided over ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from planner.executor.model.tensor_parallel import TensorParallel

IGNORED = -100
"""Target of positions that do not count (torch's ignore_index)."""


def token_loss_sum(
    logits: Tensor, targets: Tensor, tp: TensorParallel | None = None, vocab_size: int = 0
) -> Tensor:
    """Sum of -log softmax at the targets, in fp32.

    logits [..., V / tp] of the rank, targets [...] with IGNORED where a position does not count; `vocab_size` above 0
    says how many columns of the padded vocabulary exist. Keeps one fp32 softmax from forward to backward, which the
    backward turns into the gradient in place.
    """
    found: Tensor = _CrossEntropySum.apply(logits, targets, tp or TensorParallel(), vocab_size)  # type: ignore[no-untyped-call]
    return found


class _CrossEntropySum(torch.autograd.Function):
    """Vocabulary-parallel cross entropy (Shoeybi et al. 2019, section 3): three small all-reduces over positions."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, tp: TensorParallel, vocab_size: int) -> Tensor:
        columns = logits.shape[-1]
        rows = logits.reshape(-1, columns)
        softmax = torch.empty(rows.shape, dtype=torch.float32, device=rows.device).copy_(rows)
        first = tp.rank * columns
        if vocab_size and first + columns > vocab_size:
            softmax[:, max(vocab_size - first, 0) :] = float("-inf")
        flat = targets.reshape(-1)
        highest = _reduced(softmax.amax(-1), tp, dist.ReduceOp.MAX)
        softmax.sub_(highest.unsqueeze(-1))
        own = flat - first
        valid = flat != IGNORED
        here = valid & (own >= 0) & (own < columns)
        column = own.masked_fill(~here, 0).unsqueeze(-1)
        at_target = softmax.gather(-1, column).squeeze(-1).masked_fill(~here, 0.0)
        total = softmax.exp_().sum(-1)
        if tp.size > 1:
            both = torch.stack((at_target, total))
            at_target, total = _reduced(both, tp, dist.ReduceOp.SUM).unbind(0)
        softmax.div_(total.unsqueeze(-1))
        ctx.save_for_backward(softmax, column, here, valid)
        ctx.shape, ctx.dtype = logits.shape, logits.dtype
        return (total.log() - at_target).masked_fill(~valid, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        softmax, column, here, valid = ctx.saved_tensors
        softmax.scatter_add_(-1, column, -here.to(torch.float32).unsqueeze(-1))
        softmax.mul_((valid.to(torch.float32) * gradients[0]).unsqueeze(-1))
        return softmax.view(ctx.shape).to(ctx.dtype), None, None, None


def _reduced(x: Tensor, tp: TensorParallel, operation: Any) -> Tensor:
    if tp.size > 1:
        dist.all_reduce(x, op=operation, group=tp.group)
    return x


def class_loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over samples of the cross entropy of [B, classes] logits, in fp32."""
    return functional.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=IGNORED)
