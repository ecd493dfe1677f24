"""What a rank computes of its experts: grouped linears over rows in expert order, the weighted activation between.

A copy's weight multiplies what its expert's last linear reads, as that is narrower than what it writes, and is needed
by its backward anyway.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Activation, GroupedLinear
from planner.executor.model.operators.elementwise import ActivationModule
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.tensor_parallel import local
from planner.executor.model.wiring import is_gated

GROUPED_ALIGNMENT_BYTES = 16
"""Rows of a grouped matrix product must start at multiples of this (aten::_grouped_mm)."""


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


class GroupedLinearModule(nn.Module):
    """One linear per expert of the rank over the rows routed to it; a gated activation's two halves are parameters of
    their own. Expert tensor parallel divides the outputs of a column linear, the inputs of a row linear. An adapter
    gives what is added to each part."""

    def __init__(self, operator: GroupedLinear, site: Site) -> None:
        super().__init__()
        self.adapters: nn.Module | None = None
        self.names = ("gate", "up") if is_gated(operator, site.kind.operators) else ("weight",)
        features = operator.out_features // len(self.names)
        column = operator.split == "column"
        self.bias_here = column or site.experts.etp_rank == 0
        self.biased = operator.bias
        for name in self.names:
            shape = (operator.experts, features, operator.in_features)
            weight = Initial(shape, shard=1 if column else 2, expert=True)
            setattr(self, name, site.maker.make(name, weight))
            if operator.bias:
                bias = Initial(shape[:2], zeros, 1 if column else None, partial=not column, expert=True)
                setattr(self, f"{name}_bias", site.maker.make(f"{name}_bias", bias))

    def forward(
        self, rows: Tensor, counts: Tensor, weights: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """[R, in] in expert order -> [R, features] of each part; a bias is multiplied by its rows' weights."""
        outputs = tuple(self._part(rows, counts, weights, name) for name in self.names)
        if self.adapters is not None:
            added = self.adapters(rows, counts)
            outputs = tuple(out.add_(more) for out, more in zip(outputs, added, strict=True))
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
