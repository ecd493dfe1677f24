"""Attention of some queries to some keys, so that parts over other keys can be merged; and its backward.

A part gives its output and the logarithm of the sum of its exponentials; parts are merged by those (Liu et al. 2023,
arXiv 2310.01889, section 3). The backward of each part needs only the merged output and sum, as that of a fused kernel
(Dao et al. 2022, algorithm 4). Scores exist for a block of queries at a time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.executor.model.operators.tables import MaskShape, Tables
from planner.executor.positions import Run

QUERY_BLOCK = 512
"""Queries whose scores exist at the same time."""


@dataclass(frozen=True, slots=True)
class Scoring:
    """How scores are made of queries and keys: `slopes` [heads] are ALiBi's, `cap` bounds them by a tanh."""

    scale: float
    shape: MaskShape
    tables: Tables
    cap: float = 0.0
    slopes: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Queries and keys of one product: places in what the ranks hold, and the positions that stand there."""

    query: slice
    key: slice
    query_run: Run
    key_run: Run
    masked: bool


def blocks(queries: tuple[Run, ...], keys: tuple[Run, ...], shape: MaskShape) -> Iterator[Block]:
    """Products that some query needs: runs of queries (cut to a few at a time) against runs of keys."""
    query_place = 0
    for first, length in queries:
        for start in range(0, length, QUERY_BLOCK):
            few = min(QUERY_BLOCK, length - start)
            query = (first + start, few)
            place = slice(query_place + start, query_place + start + few)
            key_place = 0
            for key in keys:
                if shape.sees_any(query, key):
                    seen = shape.cut(query, key)
                    own = slice(key_place, key_place + seen[1])
                    yield Block(place, own, query, seen, not shape.sees_all(query, seen))
                key_place += key[1]
        query_place += length


class Parts:
    """Output and log-sum of some queries, merged part by part. q [B, heads, L, D], k and v [B, kv heads, L', D]."""

    def __init__(self, q: Tensor, v_dim: int, scoring: Scoring) -> None:
        self._q, self._scoring = q, scoring
        batch, heads, length = q.shape[:3]
        # As [B, L, heads, D] in memory, which is what the linear after it reads and keeps.
        self.output = q.new_zeros((batch, length, heads, v_dim), dtype=torch.float32).transpose(1, 2)
        self.log_sum = q.new_full(q.shape[:3], -math.inf, dtype=torch.float32)

    def add(self, k: Tensor, v: Tensor, queries: tuple[Run, ...], keys: tuple[Run, ...]) -> None:
        """The part over these keys."""
        for block in blocks(queries, keys, self._scoring.shape):
            key, value = k[:, :, block.key], v[:, :, block.key]
            scores = made_scores(self._q[:, :, block.query], key, block, self._scoring)
            highest = scores.amax(-1, keepdim=True)
            highest = highest.masked_fill(highest == -math.inf, 0.0)
            weights = scores.sub_(highest).exp_()
            total = weights.sum(-1)
            out = _to_values(weights.to(value.dtype), value).float()
            self._merge(block.query, out, highest.squeeze(-1), total)

    def add_sinks(self, sinks: Tensor) -> None:
        """A share of the sum for each head that gives nothing (gpt-oss 2025)."""
        merged = torch.logaddexp(self.log_sum, sinks.float().view(1, -1, 1))
        self.output *= (self.log_sum - merged).exp().unsqueeze(-1)
        self.log_sum = merged

    def _merge(self, place: slice, out: Tensor, highest: Tensor, total: Tensor) -> None:
        """`out` is the sum of values times exp(score - highest), `total` that of the exponentials."""
        before = self.log_sum[:, :, place]
        merged = torch.logaddexp(before, highest + total.log())
        safe = merged.masked_fill(merged == -math.inf, 0.0)
        self.output[:, :, place] *= (before - safe).exp().unsqueeze(-1)
        self.output[:, :, place] += out * (highest - safe).exp().unsqueeze(-1)
        self.log_sum[:, :, place] = merged


@dataclass(frozen=True, slots=True)
class Finished:
    """What a backward needs of the merged attention: queries, the output's gradient, log-sums, and for each query the
    product of output and gradient."""

    q: Tensor
    gradient: Tensor
    log_sum: Tensor
    product: Tensor
    scoring: Scoring

    def part(
        self, k: Tensor, v: Tensor, queries: tuple[Run, ...], keys: tuple[Run, ...], to_q: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of these keys and values; adds to that of the queries (fp32)."""
        to_k = torch.zeros_like(k, dtype=torch.float32)
        to_v = torch.zeros_like(v, dtype=torch.float32)
        for block in blocks(queries, keys, self.scoring.shape):
            q, key, value = self.q[:, :, block.query], k[:, :, block.key], v[:, :, block.key]
            gradient = self.gradient[:, :, block.query]
            scores, slope = _with_slope(q, key, block, self.scoring)
            weights = (scores - self.log_sum[:, :, block.query].unsqueeze(-1)).exp_()
            to_v[:, :, block.key] += _to_keys(weights.to(gradient.dtype), gradient, v.shape[1])
            inner = _products(gradient, value).float() - self.product[:, :, block.query].unsqueeze(-1)
            to_scores = (weights * inner).mul_(self.scoring.scale)
            to_scores = (to_scores if slope is None else to_scores * slope).to(q.dtype)
            to_q[:, :, block.query] += _to_values(to_scores, key)
            to_k[:, :, block.key] += _to_keys(to_scores, q, k.shape[1])
        return to_k, to_v

    def to_sinks(self, sinks: Tensor) -> Tensor:
        """Gradient of the sinks [heads]."""
        share = (sinks.float().view(1, -1, 1) - self.log_sum).exp()
        return -(share * self.product).sum((0, 2)).to(sinks.dtype)


def made_scores(q: Tensor, k: Tensor, block: Block, scoring: Scoring) -> Tensor:
    """fp32 scores [B, heads, L, L'], minus infinity where a query does not see a key."""
    return _with_slope(q, k, block, scoring)[0]


def _with_slope(q: Tensor, k: Tensor, block: Block, scoring: Scoring) -> tuple[Tensor, Tensor | None]:
    """Scores, and their derivative by the product under the cap (None: 1)."""
    scores, slope = _products(q, k).float() * scoring.scale, None
    if scoring.cap:
        bounded = torch.tanh(scores / scoring.cap)
        scores, slope = bounded * scoring.cap, 1.0 - bounded.square()
    tables, runs = scoring.tables, (block.query_run, block.key_run)
    if scoring.slopes is not None:
        scores = scores + tables.distances(*runs, scores) * scoring.slopes.view(1, -1, 1, 1)
    if block.masked:
        scores = scores.masked_fill(~tables.mask_between(scoring.shape, *runs, q.device), -math.inf)
    return scores, slope


def _products(q: Tensor, k: Tensor) -> Tensor:
    """[B, heads, L, D] with [B, kv heads, L', D] -> [B, heads, L, L']; keys are not repeated."""
    batch, heads, length, dim = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, dim)
    return (grouped @ k.transpose(-1, -2)).view(batch, heads, length, -1)


def _to_values(weights: Tensor, v: Tensor) -> Tensor:
    """[B, heads, L, L'] with [B, kv heads, L', D] -> [B, heads, L, D]."""
    batch, heads, length, keys = weights.shape
    return (weights.reshape(batch, v.shape[1], -1, keys) @ v).view(batch, heads, length, -1)


def _to_keys(weights: Tensor, x: Tensor, kv_heads: int) -> Tensor:
    """[B, heads, L, L'] with [B, heads, L, D] -> [B, kv heads, L', D], summed over queries and a key's heads."""
    batch, _, _, keys = weights.shape
    grouped = weights.reshape(batch, kv_heads, -1, keys)
    return grouped.transpose(-1, -2) @ x.reshape(batch, kv_heads, -1, x.shape[-1])
