"""Scaled dot-product attention over the rank's heads: a fused kernel, or scores in full.

Scores that a fused kernel cannot make (a soft cap, sinks) are made for some queries at a time and again for their
backward, so that as little is kept as by a fused kernel (FlashAttention, Dao et al. 2022, section 3.1).
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.errors import BadInput
from cost_models.operators import Attention
from cost_models.specs.model import LayerKind
from planner.executor.model.context_parallel import (
    ContextParallel,
    heads_to_positions,
    positions_to_heads,
)
from planner.executor.model.operators.context_attention import Setup, context_attention
from planner.executor.model.operators.partial_attention import QUERY_BLOCK, Scoring
from planner.executor.model.operators.site import Site
from planner.executor.model.operators.tables import MaskShape, alibi_slopes
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.recompute import run_again
from planner.executor.model.tensor_parallel import local
from planner.executor.model.wiring import LATENT_INPUTS
from planner.executor.positions import ULYSSES

ALONE = ContextParallel()


class AttentionModule(nn.Module):
    """softmax(scale Q K^T + mask) V. Heads are those of the rank."""

    sinks: nn.Parameter | None

    def __init__(self, operator: Attention, site: Site) -> None:
        super().__init__()
        tp, semantics = site.tp, site.semantics
        for heads in (operator.heads, operator.kv_heads):
            if heads % tp.size:
                raise BadInput(
                    f"{heads} heads cannot be divided over tp {tp.size}; use a tp that divides them"
                )
        self.operator = operator
        self.tables = site.tables
        self.context = site.context
        self.swaps = site.context.size > 1 and site.context.kind == ULYSSES
        ranks = tp.size * (site.context.size if self.swaps else 1)
        self.num_heads = operator.heads // ranks
        self.kv_heads = operator.kv_heads // ranks
        self.scale = semantics.attention_scale(operator.qk_dim)
        if is_latent(site.kind):
            self.scale *= semantics.latent_scale()
        self.cap = semantics.number("attention_soft_cap", 0.0) if operator.soft_cap else 0.0
        self.dropout = site.dropout if operator.dropout else 0.0
        place = tp.rank * site.context.size + site.context.rank if self.swaps else tp.rank
        self.own_heads = range(place * self.num_heads, (place + 1) * self.num_heads)
        self.alibi = semantics.values.get("position") == "alibi"
        self.unfused = site.options.attention == "unfused"
        self.by_queries = bool(self.cap) or operator.sinks
        self.sinks = (
            site.maker.make("sinks", Initial((operator.heads,), zeros, 0)) if operator.sinks else None
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[B, S, heads x dim] each -> [B, S, heads x v_dim]; positions are those of the rank."""
        if self.swaps:
            swapped = (heads_to_positions(each, self.context) for each in (q, k, v))
            return positions_to_heads(self._attend(*swapped), self.context)
        return self._attend(q, k, v)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Over the positions at hand, and those of other ranks where keys travel."""
        batch, length = q.shape[:2]
        query = q.view(batch, length, self.num_heads, -1).transpose(1, 2)
        key = k.view(batch, length, self.kv_heads, -1).transpose(1, 2)
        value = v.view(batch, length, self.kv_heads, -1).transpose(1, 2)
        if self.context.size > 1 and not self.swaps:
            out = context_attention(query, key, value, self._own_sinks(), self._setup(q))
        else:
            out = self._here(query, key, value, self._mask(length, q))
        return out.transpose(1, 2).reshape(batch, length, -1)

    def _here(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if self.unfused:
            return self._scores(query, key, value, mask)
        if self.by_queries:
            return self._blocks(query, key, value, mask)
        return self._fused(query, key, value, mask)

    def _setup(self, like: Tensor) -> Setup:
        """How scores are made where keys of other ranks come to this one's queries."""
        operator = self.operator
        slopes = None
        if self.alibi:
            every = torch.tensor(alibi_slopes(operator.heads), dtype=torch.float32, device=like.device)
            slopes = every[self.own_heads.start : self.own_heads.stop]
        causal = operator.causal or self.alibi
        shape = MaskShape(causal, operator.window, operator.chunk)
        return Setup(self.context, Scoring(self.scale, shape, self.tables, self.cap, slopes))

    def _own_sinks(self) -> Tensor | None:
        """Sinks of the heads that this rank works on."""
        if self.sinks is None:
            return None
        sinks = local(self.sinks)
        if not self.swaps:
            return sinks
        return sinks.narrow(0, self.context.rank * self.num_heads, self.num_heads)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Torch's fused kernel; the one for CPUs wants values as wide as keys."""
        if query.device.type == "cpu" and value.shape[-1] != query.shape[-1] and not self.dropout:
            return context_attention(query, key, value, None, replace(self._setup(query), context=ALONE))
        out = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.operator.causal and mask is None,
            scale=self.scale,
            enable_gqa=self.num_heads != self.kv_heads,
        )
        return out

    def _blocks(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Some queries at a time; under a causal mask the keys after them are left out."""

        def block(*tensors: Tensor) -> tuple[Tensor, ...]:
            few, keys, values, *seen = tensors
            return (self._scores(few, keys, values, seen[0] if seen else None),)

        length = query.shape[2]
        found = []
        for start in range(0, length, QUERY_BLOCK):
            stop = min(start + QUERY_BLOCK, length)
            end = stop if self.operator.causal else length
            seen = () if mask is None else (mask[..., start:stop, :end],)
            inputs = (query[:, :, start:stop], key[:, :, :end], value[:, :, :end], *seen)
            found.append(run_again(block, inputs, bool(self.dropout))[0])
        return torch.cat(found, 2)

    def _mask(self, length: int, like: Tensor) -> Tensor | None:
        """None where the kernel's causal flag (or no mask at all) says everything."""
        operator = self.operator
        if self.alibi:
            return self.tables.alibi(self.own_heads, operator.heads, length, like)
        window = operator.window if operator.window < length else 0
        chunk = operator.chunk if operator.chunk < length else 0
        own_scores = self.unfused or self.by_queries
        if not (window or chunk) and not (own_scores and operator.causal):
            return None
        return self.tables.mask(MaskShape(operator.causal, window, chunk), length, like.device)

    def _scores(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Scores of the query heads of one key/value head stand below each other, so keys are never repeated."""
        batch, _, length, _ = query.shape
        queries = query.reshape(batch, self.kv_heads, -1, query.shape[-1])
        scores = (queries @ key.transpose(-1, -2)) * self.scale
        scores = scores.view(batch, self.num_heads, length, -1)
        if self.cap:
            scores = torch.tanh(scores / self.cap) * self.cap
        if mask is not None:
            scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, float("-inf"))
        probabilities = self._softmax(scores).to(value.dtype)
        if self.dropout:
            probabilities = functional.dropout(probabilities, self.dropout, self.training)
        out = probabilities.reshape(batch, self.kv_heads, -1, key.shape[2]) @ value
        return out.view(batch, self.num_heads, length, -1)

    def _softmax(self, scores: Tensor) -> Tensor:
        """Over the keys in fp32; a sink takes its share of the sum and gives nothing (gpt-oss)."""
        sinks = self._own_sinks()
        if sinks is None:
            return functional.softmax(scores, -1, dtype=torch.float32)
        sink = sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        return functional.softmax(torch.cat((scores, sink), -1), -1, dtype=torch.float32)[..., :-1]


def is_latent(kind: LayerKind) -> bool:
    """Whether keys and values come from a latent (DeepSeek-V2)."""
    return any(op.family == "rope" and op.inputs == LATENT_INPUTS for op in kind.operators)
