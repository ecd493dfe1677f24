"""Rotary position embedding of queries and keys, and of the shared key of latent attention."""

import torch
from torch import Tensor, nn

from cost_models.operators import Rope
from planner.executor.model.operators.site import Site
from planner.executor.model.operators.tables import Tables
from planner.executor.model.semantics import RopeSettings, rotated_features
from planner.executor.model.wiring import LATENT_INPUTS


def rope_module(operator: Rope, site: Site) -> nn.Module:
    """The module for plain heads or for latent attention."""
    return (
        LatentRopeModule(operator, site) if operator.inputs == LATENT_INPUTS else RopeModule(operator, site)
    )


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
        heads = x.reshape(*x.shape[:-1], -1, self.head_dim)
        features = self.settings.features
        turned = rotate(heads[..., :features], cos, sin, self.settings.interleaved)
        if features < self.head_dim:
            turned = torch.cat((turned, heads[..., features:]), -1)
        return turned.flatten(-2)


class LatentRopeModule(nn.Module):
    """Latent attention (DeepSeek-V2 2024, section 2.1.3): the last features of each query head turn; one turned key is
    shared by all heads and joined to each head's own part. Pairs are neighbours, as in the released models, unless the
    config says otherwise."""

    def __init__(self, operator: Rope, site: Site) -> None:
        super().__init__()
        attention = next(op for op in site.kind.operators if op.family == "attention")
        self.head_dim = attention.qk_dim
        self.tables: Tables = site.tables
        self.settings: RopeSettings = site.semantics.rope(site.kind.name, rotated_features(site.kind))
        self.interleaved = site.semantics.flag("config.rope_interleave", True)

    def forward(self, q: Tensor, latent: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, S, heads x dim], latent [B, S, rank + rotated], keys' own part [B, S, heads x plain]."""
        turning = self.settings.features
        plain = self.head_dim - turning
        cos, sin = self.tables.rotations(self.settings, q.shape[1], q)
        heads = q.reshape(*q.shape[:-1], -1, self.head_dim)
        turned = rotate(heads[..., plain:], cos, sin, interleaved=self.interleaved)
        shared = rotate(latent[..., -turning:].unsqueeze(-2), cos, sin, interleaved=self.interleaved)
        keys = own.reshape(*own.shape[:-1], -1, plain)
        joined = torch.cat((keys, shared.expand(*keys.shape[:-1], turning)), -1)
        return torch.cat((heads[..., :plain], turned), -1).flatten(-2), joined.flatten(-2)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Pairs are the two halves (Llama), or neighbours (GPT-J)."""
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
