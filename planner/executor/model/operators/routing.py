"""Which experts a token goes to, and with what weight; how the load of experts is kept even."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Router
from planner.executor.model.operators.balance import Routed, capacity_of, left_out, with_auxiliary
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.semantics import Semantics
from planner.executor.model.tensor_parallel import local

SUM_FLOOR = 1e-20
"""Added to the sum of a token's scores before they are divided by it (DeepSeek-V3's published router)."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Weights and experts of each token [T, top_k], and what they were chosen by: the ranking [T, E] (minus infinity
    where a group was not kept), and the ranking of the groups [T, groups]."""

    weights: Tensor
    experts: Tensor
    ranking: Tensor
    groups: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """How scores become a choice of experts."""

    top_k: int
    scoring: str
    normalise: bool
    scaling: float
    groups: int
    groups_kept: int

    def choose(self, logits: Tensor, correction: Tensor | None = None) -> Chosen:
        """fp32 logits [T, E]; `correction` [E] counts in the choice and not in the weights."""
        if self.scoring == "softmax_of_top_k":
            kept, experts = logits.topk(self.top_k, -1)
            return Chosen(kept.softmax(-1) * self.scaling, experts, logits.detach())
        scores = logits.sigmoid() if self.scoring == "sigmoid" else logits.softmax(-1)
        ranking = scores.detach() if correction is None else scores.detach() + correction
        ranking, groups = self._limited(ranking)
        experts = ranking.topk(self.top_k, -1).indices
        weights = scores.gather(-1, experts)
        if self.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + SUM_FLOOR)
        return Chosen(weights * self.scaling, experts, ranking, groups)

    def _limited(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores of the best groups of experts, none elsewhere: a group counts by its best score, or its two best
        where scores are sigmoids (DeepSeek-V2 2024, section 2.2.2; DeepSeek-V3 2024, section 2.1.2)."""
        if self.groups <= 1:
            return scores, None
        grouped = scores.view(scores.shape[0], self.groups, -1)
        best = grouped.topk(2, -1).values.sum(-1) if self.scoring == "sigmoid" else grouped.amax(-1)
        kept = torch.zeros_like(best).scatter_(1, best.topk(self.groups_kept, -1).indices, 1.0)
        return grouped.masked_fill(kept.unsqueeze(-1) == 0.0, -math.inf).view_as(scores), best


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
    """Scores of every expert, the top k of them, and the gate of a shared expert.

    `correction` is added to the scores in the choice alone; `load` counts the choices of each expert since it was last
    set to zero (Wang et al. 2024, arXiv 2408.15664). `margin`, where it is watched, is the smallest distance of any
    choice from being another one.
    """

    bias: nn.Parameter | None
    shared_gate: nn.Parameter | None
    correction: Tensor | None
    load: Tensor

    def __init__(self, operator: Router, site: Site) -> None:
        super().__init__()
        experts, hidden = operator.experts, operator.hidden
        maker = site.maker
        # Each tensor-parallel rank routes its own slice of the tokens.
        self.weight = maker.make("weight", Initial((experts, hidden), partial=True))
        bias = Initial((experts,), zeros, partial=True)
        self.bias = maker.make("bias", bias) if operator.bias else None
        gate = Initial((1, hidden), partial=site.tp.splits_sequence)
        self.shared_gate = maker.make("shared_gate", gate) if operator.shared_gate else None
        self.choice = choice_of(operator, site.semantics)
        self.balance = site.experts.balance
        corrected = site.semantics.flag("router_bias_correction")
        device = site.options.device
        self.register_buffer("correction", torch.zeros(experts, device=device) if corrected else None)
        self.register_buffer("load", torch.zeros(experts, device=device), persistent=False)
        self.watched = False
        self.margin = math.inf

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, H] -> weights and experts, each [B x S, top_k]; an expert beyond the last is none."""
        rows = x.reshape(-1, x.shape[-1])
        bias = None if self.bias is None else local(self.bias)
        logits = functional.linear(rows, local(self.weight), bias).float()
        found = self.choice.choose(logits, self.correction)
        weights, experts = found.weights, found.experts
        if self.training and self.correction is not None:
            self.load += torch.bincount(experts.reshape(-1), minlength=len(self.load))
        if self.watched:
            self.margin = min(self.margin, margin_of(found))
        if self.training and self.balance.auxiliary:
            weights = with_auxiliary(
                weights, logits, experts, Routed(x.shape[0], self.choice.scoring, self.balance)
            )
        weights, experts = self._within_capacity(weights, experts, x)
        return weights.to(x.dtype), experts

    def _within_capacity(self, weights: Tensor, experts: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Choices beyond an expert's capacity get no weight and no expert."""
        parts = self.balance.parts
        tokens, number = len(experts) // max(len(parts), 1), len(self.load)
        capacity = capacity_of(self.balance, tokens, self.choice.top_k, number)
        if not capacity:
            return weights, experts
        holder = torch.zeros(x.shape[1], dtype=torch.int64, device=x.device)
        for rank, positions in enumerate(parts):
            holder[list(positions)] = rank
        cut = left_out(weights, experts, holder.repeat(x.shape[0]), capacity)
        if self.watched:
            self.margin = min(self.margin, float(cut.margin))
        return weights.masked_fill(cut.dropped, 0.0), experts.masked_fill(cut.dropped, number)

    def gate(self, x: Tensor, shared: Tensor) -> Tensor:
        """The shared expert's output times sigmoid(x w) (Qwen2-MoE)."""
        if self.shared_gate is None:
            return shared
        return functional.linear(x, local(self.shared_gate)).sigmoid() * shared


def margin_of(found: Chosen) -> float:
    """The smallest distance in rank of an expert that was chosen from one that was not, groups alike."""
    ranked = found.ranking.sort(-1, descending=True).values
    kept = found.experts.shape[-1]
    margins = [float((ranked[:, kept - 1] - ranked[:, kept]).min())] if kept < ranked.shape[-1] else []
    if found.groups is not None:
        groups = found.groups.sort(-1, descending=True).values
        chosen = int((found.ranking > -math.inf).sum(-1).max()) * groups.shape[-1] // ranked.shape[-1]
        margins.append(float((groups[:, chosen - 1] - groups[:, chosen]).min()))
    return min(margins, default=math.inf)


def routers_of(*modules: nn.Module) -> dict[str, RouterModule]:
    """Every router in the modules by its global name."""
    return {
        name: part
        for module in modules
        for name, part in module.named_modules()
        if isinstance(part, RouterModule)
    }


@torch.no_grad()
def even_out(routers: Iterable[RouterModule], rate: float, groups: Sequence[dist.ProcessGroup] = ()) -> None:
    """After a step: the correction of experts that were chosen less than the mean rises by `rate`, that of the others
    falls (Wang et al. 2024, algorithm 1); choices are added up over the groups, collective; counting starts anew."""
    for router in routers:
        if router.correction is None:
            continue
        for group in groups:
            if group.size() > 1:
                dist.all_reduce(router.load, group=group)
        router.correction += rate * (router.load.mean() - router.load).sign()
        router.load.zero_()
