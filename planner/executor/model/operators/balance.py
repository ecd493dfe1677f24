"""What keeps the load of experts even: a loss beside the model's own, and a capacity that cuts what is too much."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.model.expert_parallel import Balance


@dataclass(frozen=True, slots=True)
class Routed:
    """One micro-batch's routing on one rank: sequences, how scores are made of logits, and what keeps it even."""

    sequences: int
    scoring: str
    balance: Balance


def with_auxiliary(weights: Tensor, logits: Tensor, experts: Tensor, routed: Routed) -> Tensor:
    """The weights as they are; their backward adds the gradient of the load-balancing loss to the logits' [T, E].

    factor x E sum_i f_i P_i with f_i the share of choices that fall on expert i and P_i its mean score, over the tokens
    of a micro-batch (Fedus et al. 2021, equations 4 to 6) or of each sequence, the mean over those (DeepSeek-V3 2024,
    equations 17 to 20). Choices are counted over all ranks that hold parts of the micro-batch.
    """
    num_experts, top_k = logits.shape[1], experts.shape[1]
    scores = logits.softmax(-1)
    if routed.scoring == "sigmoid":
        scores = logits.sigmoid()
        scores = scores / scores.sum(-1, keepdim=True)
    own = scores.view(routed.sequences, -1, num_experts)
    balance, group = routed.balance, routed.balance.group
    counts = _counts(experts, routed.sequences, num_experts)
    tokens = own.shape[1]
    if group is not None:
        dist.all_reduce(counts, group=group)
        tokens *= group.size()
    means = own.sum(1) / tokens
    if not balance.by_sequence:
        counts, means, tokens = counts.sum(0), means.mean(0), tokens * routed.sequences
    shares = counts / (tokens * top_k)
    loss = balance.auxiliary * num_experts * (shares * means).sum()
    if balance.by_sequence:
        loss = loss / routed.sequences
    found: Tensor = _Beside.apply(weights, loss)  # type: ignore[no-untyped-call]
    return found


def capacity_of(balance: Balance, tokens: int, top_k: int, experts: int) -> int:
    """Copies that one expert takes of so many tokens of one rank; 0: all of them."""
    if not balance.capacity:
        return 0
    return max(math.ceil(tokens * top_k / experts * balance.capacity), 1)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which of [T, top_k] choices are left out, and the smallest distance in weight of one kept from one left out."""

    dropped: Tensor
    margin: Tensor


def left_out(weights: Tensor, experts: Tensor, parts: Tensor, capacity: int) -> Cut:
    """Choices beyond the capacity of an expert, those of the smallest weights first.

    `parts` [T] numbers the rank that holds each token: every rank's choices are cut apart.
    """
    number = int(experts.max()) + 1
    keys = (parts.unsqueeze(-1) * number + experts).reshape(-1)
    flat = weights.detach().reshape(-1)
    by_weight = flat.argsort(descending=True, stable=True)
    order = by_weight[keys[by_weight].argsort(stable=True)]
    counts = torch.bincount(keys)
    starts = counts.cumsum(0) - counts
    place = torch.arange(len(keys), device=keys.device) - starts[keys[order]]
    dropped = torch.zeros_like(keys, dtype=torch.bool)
    dropped[order] = place >= capacity
    full = starts[counts > capacity] + capacity
    margin = (flat[order[full - 1]] - flat[order[full]]) if len(full) else flat.new_full((1,), math.inf)
    return Cut(dropped.view_as(experts), margin.min())


class _Beside(torch.autograd.Function):
    """The first tensor; the second, a loss beside the model's own, gets the gradient 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:
        return gradients[0], torch.ones_like(ctx.saved_tensors[0])


def _counts(experts: Tensor, sequences: int, num_experts: int) -> Tensor:
    """Choices of each expert in each sequence, [sequences, E] in fp32."""
    by_sequence = experts.view(sequences, -1)
    counts = torch.zeros((sequences, num_experts), dtype=torch.float32, device=experts.device)
    return counts.scatter_add_(1, by_sequence, torch.ones_like(by_sequence, dtype=torch.float32))
