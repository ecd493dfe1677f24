"""Activations, residual additions."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import Activation, Residual
from planner.executor.model.operators.functions import FUNCTIONS
from planner.executor.model.operators.site import Site

STEEPNESS = 1.702
"""Factor inside the sigmoid that approximates GELU (Hendrycks and Gimpel 2016, section 2)."""


class ActivationModule(nn.Module):
    """f(x), or f(gate) x up; a sigmoid gate stands second (gate of an attention output)."""

    def __init__(self, operator: Activation, site: Site) -> None:
        super().__init__()
        self.function = FUNCTIONS[operator.function]
        self.gated = operator.gated
        self.gate_last = operator.function == "sigmoid"
        self.limit = site.semantics.number("activation_limit", 0.0)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Features of one tensor (halved where it holds both), or of two."""
        if not self.gated:
            return self.function(x)
        if other is None:
            x, other = x.chunk(2, -1)
        if self.limit:
            return self._limited(x, other)
        gate, value = (other, x) if self.gate_last else (x, other)
        return self.function(gate) * value

    def _limited(self, gate: Tensor, up: Tensor) -> Tensor:
        """gpt-oss (2025): bounded halves, a steeper sigmoid in the gate, and one added to the other half."""
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return (up + 1.0) * gate * torch.sigmoid(STEEPNESS * gate)


class ResidualModule(nn.Module):
    """The stream plus its branches."""

    def __init__(self, operator: Residual, site: Site) -> None:
        super().__init__()
        self.dropout = site.dropout if operator.dropout else 0.0
        self.factor = site.semantics.number("residual_multiplier", 1.0)

    def forward(self, x: Tensor, *branches: Tensor) -> Tensor:
        """Sum of equal shapes."""
        for branch in branches:
            dropped = functional.dropout(branch, self.dropout, self.training) if self.dropout else branch
            x = x + dropped if self.factor == 1.0 else torch.add(x, dropped, alpha=self.factor)
        return x
