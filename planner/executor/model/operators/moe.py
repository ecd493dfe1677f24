"""Routed experts on one rank: copies of tokens in expert order, grouped linears, and the way back.

A copy's weight multiplies what its expert's last linear reads, as that is narrower than what it writes, and is needed
by its backward anyway.

All experts stand on every rank (ep = 1), whole, or divided inside over the tensor-parallel ranks (etp = tp).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Activation, Combine, Dispatch, GroupedLinear
from planner.executor.model.operators.elementwise import ActivationModule
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.tensor_parallel import leave, local
from planner.executor.model.wiring import is_gated

GROUPED_ALIGNMENT_BYTES = 16
"""Rows of a grouped matrix product must start at multiples of this (aten::_grouped_mm)."""


class DispatchModule(nn.Module):
    """Copies every token once per chosen expert, in expert order."""

    def __init__(self, operator: Dispatch, site: Site) -> None:
        super().__init__()
        self.top_k = operator.top_k
        router = next(op for op in site.kind.operators if op.family == "router")
        self.experts = router.experts

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> tuple[Tensor, ...]:
        """Rows [T x top_k, H], copies per expert [E], each row's token and weight."""
        order = experts.reshape(-1).argsort(stable=True)
        counts = torch.bincount(experts.reshape(-1), minlength=self.experts)
        tokens = order // self.top_k
        rows = x.reshape(-1, x.shape[-1]).index_select(0, tokens)
        return rows, counts, tokens, weights.reshape(-1).index_select(0, order)


class ExpertActivationModule(nn.Module):
    """f(x), or f(gate) x up, times the copy's weight; keeps its inputs alone and computes the function again."""

    def __init__(self, operator: Activation, site: Site) -> None:
        super().__init__()
        self.plain = ActivationModule(operator, site)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Rows of one or two tensors, and the rows' weights [R]."""
        *rows, weights = tensors
        found: Tensor = _Weighted.apply(self.plain.forward, weights, *rows)  # type: ignore[no-untyped-call]
        return found


class _Weighted(torch.autograd.Function):
    """function(*rows) x weight of the row."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], weights: Tensor, *rows: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *rows)
        ctx.function = function
        return function(*rows) * weights.unsqueeze(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        weights, *rows = ctx.saved_tensors
        with torch.enable_grad():
            leaves = tuple(each.detach().requires_grad_() for each in rows)
            values = ctx.function(*leaves)
        to_values = gradients[0] * weights.unsqueeze(-1)
        to_weights = torch.linalg.vecdot(gradients[0], values.detach())
        return (None, to_weights, *torch.autograd.grad(values, leaves, to_values))


class CombineModule(nn.Module):
    """The sum of each token's copies."""

    def __init__(self, operator: Combine, site: Site) -> None:
        super().__init__()
        self.tp = site.tp
        self.divided = site.options.expert_tensor_parallel

    def forward(self, rows: Tensor, like: Tensor, tokens: Tensor) -> Tensor:
        """Rows in expert order -> [B, S, H] in the shape of the tensor that was dispatched."""
        summed: Tensor = _SumRows.apply(rows, tokens, like.shape[0] * like.shape[1])  # type: ignore[no-untyped-call]
        out = summed.view(*like.shape[:2], -1)
        return leave(out, self.tp) if self.divided else out


class _SumRows(torch.autograd.Function):
    """Rows added up by token; torch's own index_add keeps the rows for their shape."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tokens: Tensor, num_tokens: int) -> Tensor:
        ctx.save_for_backward(tokens)
        return rows.new_zeros((num_tokens, rows.shape[-1])).index_add_(0, tokens, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        return gradients[0].index_select(0, tokens), None, None


class GroupedLinearModule(nn.Module):
    """One linear per expert over the rows routed to it; a gated activation's two halves are parameters of their own."""

    def __init__(self, operator: GroupedLinear, site: Site) -> None:
        super().__init__()
        self.names = ("gate", "up") if is_gated(operator, site.kind.operators) else ("weight",)
        features = operator.out_features // len(self.names)
        divided = site.options.expert_tensor_parallel
        column = operator.split == "column"
        shard = (1 if column else 2) if divided else None
        partial = not divided and site.tp.splits_sequence
        self.bias_here = column or not divided or site.tp.rank == 0
        self.biased = operator.bias
        for name in self.names:
            shape = (operator.experts, features, operator.in_features)
            setattr(self, name, site.maker.make(name, Initial(shape, shard=shard, partial=partial)))
            if operator.bias:
                bias = Initial(
                    shape[:2],
                    zeros,
                    1 if divided and column else None,
                    partial=partial or (divided and not column),
                )
                setattr(self, f"{name}_bias", site.maker.make(f"{name}_bias", bias))

    def forward(
        self, rows: Tensor, counts: Tensor, weights: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """[R, in] in expert order -> [R, features] of each part; a bias is multiplied by its rows' weights."""
        outputs = tuple(self._part(rows, counts, weights, name) for name in self.names)
        return outputs if len(outputs) > 1 else outputs[0]

    def _part(self, rows: Tensor, counts: Tensor, weights: Tensor | None, name: str) -> Tensor:
        out = grouped_product(rows, local(getattr(self, name)), counts)
        if not self.biased:
            return out
        bias = local(getattr(self, f"{name}_bias")).repeat_interleave(counts, 0)
        if weights is not None:
            bias = bias * weights.unsqueeze(-1)
        # A row-parallel bias is added once; the other ranks take part with zero so that it has a gradient there.
        return out + (bias if self.bias_here else bias * 0.0)


def grouped_product(rows: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """rows[e] @ weights[e]^T for each expert's rows; rows [R, K], weights [E, N, K], counts [E]."""
    aligned = all(size * rows.element_size() % GROUPED_ALIGNMENT_BYTES == 0 for size in weights.shape[1:])
    if aligned and hasattr(functional, "grouped_mm"):
        ends = counts.cumsum(0).to(torch.int32)
        product: Tensor = functional.grouped_mm(rows, weights.transpose(1, 2), offs=ends)
        return product
    parts = torch.split_with_sizes(rows, counts.tolist())
    return torch.cat([functional.linear(part, weight) for part, weight in zip(parts, weights, strict=True)])
