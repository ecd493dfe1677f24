"""Routed experts on one rank: copies of tokens in expert order, grouped linears, and the way back.

All experts stand on every rank (ep = 1), whole, or divided inside over the tensor-parallel ranks (etp = tp).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Combine, Dispatch, GroupedLinear
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


class CombineModule(nn.Module):
    """The weighted sum of each token's copies."""

    def __init__(self, operator: Combine, site: Site) -> None:
        super().__init__()
        self.tp = site.tp
        self.divided = site.options.expert_tensor_parallel

    def forward(self, rows: Tensor, like: Tensor, tokens: Tensor, weights: Tensor) -> Tensor:
        """Rows in expert order -> [B, S, H] in the shape of the tensor that was dispatched."""
        out = rows.new_zeros((like.shape[0] * like.shape[1], rows.shape[-1]))
        out = out.index_add(0, tokens, rows * weights.unsqueeze(-1)).view(*like.shape[:2], -1)
        return leave(out, self.tp) if self.divided else out


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

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor | tuple[Tensor, ...]:
        """[R, in] in expert order -> [R, features] of each part."""
        outputs = tuple(self._part(rows, counts, name) for name in self.names)
        return outputs if len(outputs) > 1 else outputs[0]

    def _part(self, rows: Tensor, counts: Tensor, name: str) -> Tensor:
        out = grouped_product(rows, local(getattr(self, name)), counts)
        if not self.biased:
            return out
        bias = local(getattr(self, f"{name}_bias")).repeat_interleave(counts, 0)
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
