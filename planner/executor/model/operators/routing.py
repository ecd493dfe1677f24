"""Which experts a token goes to, and with what weight."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Router
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.semantics import Semantics
from planner.executor.model.tensor_parallel import local

SUM_FLOOR = 1e-20
"""Added to the sum of a token's scores before they are divided by it (DeepSeek-V3's published router)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How scores become a choice of experts."""

    top_k: int
    scoring: str
    normalise: bool
    scaling: float
    groups: int
    groups_kept: int

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """fp32 logits [T, E] -> weights and experts [T, top_k]."""
        if self.scoring == "softmax_of_top_k":
            kept, experts = logits.topk(self.top_k, -1)
            return kept.softmax(-1) * self.scaling, experts
        scores = logits.sigmoid() if self.scoring == "sigmoid" else logits.softmax(-1)
        experts = self._limited(scores.detach()).topk(self.top_k, -1).indices
        weights = scores.gather(-1, experts)
        if self.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + SUM_FLOOR)
        return weights * self.scaling, experts

    def _limited(self, scores: Tensor) -> Tensor:
        """Scores of the best groups of experts, zero elsewhere: a group counts by its best score, or its two best
        where scores are sigmoids (DeepSeek-V2 2024, section 2.2.2; DeepSeek-V3 2024, section 2.1.2)."""
        if self.groups <= 1:
            return scores
        grouped = scores.view(scores.shape[0], self.groups, -1)
        best = grouped.topk(2, -1).values.sum(-1) if self.scoring == "sigmoid" else grouped.amax(-1)
        kept = torch.zeros_like(best).scatter_(1, best.topk(self.groups_kept, -1).indices, 1.0)
        return (grouped * kept.unsqueeze(-1)).view_as(scores)


def choice_of(operator: Router, semantics: Semantics) -> Choice:
    """The model's way to choose."""
    return Choice(
        operator.top_k,
        str(semantics.values.get("router_scoring", "softmax")),
        semantics.flag("router_normalise_top_k"),
        semantics.number("router_scaling", 1.0),
        int(semantics.number("router_groups", 1.0)),
        int(semantics.number("router_groups_kept", 1.0)),
    )


class RouterModule(nn.Module):
    """Scores of every expert, the top k of them, and the gate of a shared expert."""

    bias: nn.Parameter | None
    shared_gate: nn.Parameter | None

    def __init__(self, operator: Router, site: Site) -> None:
        super().__init__()
        # Divided experts see all tokens but give each rank a partial output, so the weights' gradient is partial.
        partial = site.tp.splits_sequence or site.options.expert_tensor_parallel
        experts, hidden = operator.experts, operator.hidden
        maker = site.maker
        self.weight = maker.make("weight", Initial((experts, hidden), partial=partial))
        bias = Initial((experts,), zeros, partial=partial)
        self.bias = maker.make("bias", bias) if operator.bias else None
        gate = Initial((1, hidden), partial=site.tp.splits_sequence)
        self.shared_gate = maker.make("shared_gate", gate) if operator.shared_gate else None
        self.choice = choice_of(operator, site.semantics)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, H] -> weights and experts, each [B x S, top_k]."""
        rows = x.reshape(-1, x.shape[-1])
        bias = None if self.bias is None else local(self.bias)
        weights, experts = self.choice.choose(functional.linear(rows, local(self.weight), bias).float())
        return weights.to(x.dtype), experts

    def gate(self, x: Tensor, shared: Tensor) -> Tensor:
        """The shared expert's output times sigmoid(x w) (Qwen2-MoE)."""
        if self.shared_gate is None:
            return shared
        return functional.linear(x, local(self.shared_gate)).sigmoid() * shared
