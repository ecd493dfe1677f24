"""Activations, residual additions, rotary embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cost_models.operators import Activation, Residual, Rope
from planner.executor.model.operators.functions import FUNCTIONS
from planner.executor.model.operators.site import Site
from planner.executor.model.operators.tables import Tables
from planner.executor.model.semantics import RopeSettings, rotated_features


class ActivationModule(nn.Module):
    """f(x), or f(gate) x up; a sigmoid gate stands second (gate of an attention output)."""

    def __init__(self, operator: Activation, site: Site) -> None:
        super().__init__()
        self.function = FUNCTIONS[operator.function]
        self.gated = operator.gated
        self.gate_last = operator.function == "sigmoid"

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Features of one tensor (halved where it holds both), or of two."""
        if not self.gated:
            return self.function(x)
        if other is None:
            x, other = x.chunk(2, -1)
        gate, value = (other, x) if self.gate_last else (x, other)
        return self.function(gate) * value


class ResidualModule(nn.Module):
    """The stream plus its branches."""

    def __init__(self, operator: Residual, site: Site) -> None:
        super().__init__()
        self.dropout = site.dropout if operator.dropout else 0.0
        self.factor = site.semantics.number("residual_multiplier", 1.0)

    def forward(self, x: Tensor, *branches: Tensor) -> Tensor:
        """Sum of equal shapes."""
        for branch in branches:
            dropped = F.dropout(branch, self.dropout, self.training) if self.dropout else branch
            x = x + dropped if self.factor == 1.0 else torch.add(x, dropped, alpha=self.factor)
        return x


class RopeModule(nn.Module):
    """Turns feature pairs of queries and keys by their position (Su et al. 2021, equation 34)."""

    def __init__(self, operator: Rope, site: Site) -> None:
        super().__init__()
        attention = next(op for op in site.kind.operators if op.family == "attention")
        self.head_dim = attention.qk_dim
        self.tables: Tables = site.tables
        self.settings: RopeSettings = site.semantics.rope(site.kind.name, rotated_features(site.kind))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, heads x dim] each."""
        cos, sin = self.tables.rotations(self.settings, q.shape[1], q)
        return self._turn(q, cos, sin), self._turn(k, cos, sin)

    def _turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = x.unflatten(-1, (-1, self.head_dim))
        features = self.settings.features
        turned = rotate(heads[..., :features], cos, sin, self.settings.interleaved)
        if features < self.head_dim:
            turned = torch.cat((turned, heads[..., features:]), -1)
        return turned.flatten(-2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Pairs are the two halves (Llama), or neighbours (GPT-J)."""
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
