"""Attention of some queries to some keys, so that parts over other keys can be merged; and its backward.

A part gives its output and the logarithm of the sum of its exponentials; parts are merged by those (Liu et al. 2023,
arXiv 2310.01889, section 3). The backward of each part needs only the merged output and sum, as that of a fused kernel
(Dao et al. 2022, algorithm 4). Where runs of queries see all keys of a run, or those up to their own under a causal
mask, torch's flash kernels make the part; for what they do not know (windows, chunks, soft caps, ALiBi, other widths of
values) plain operators do, and scores exist for a block of queries at a time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from planner.executor.model.operators import fused_parts
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

    def is_plain(self, block: "Block") -> bool:
        """Whether a flash kernel knows how these scores are made and masked."""
        is_diagonal = self.shape.is_plain and block.query_run == block.key_run
        return not self.cap and self.slopes is None and (is_diagonal or not block.masked)


@dataclass(frozen=True, slots=True)
class Block:
    """Queries and keys of one product: places in what the ranks hold, and the positions that stand there."""

    query: slice
    key: slice
    query_run: Run
    key_run: Run
    masked: bool


def pairs(queries: tuple[Run, ...], keys: tuple[Run, ...], shape: MaskShape) -> Iterator[Block]:
    """Products that some query needs: runs of queries against runs of keys."""
    query_place = 0
    for query in queries:
        key_place = 0
        for key in keys:
            if shape.sees_any(query, key):
                places = (slice(query_place, query_place + query[1]), slice(key_place, key_place + key[1]))
                yield Block(*places, query, key, not shape.sees_all(query, key))
            key_place += key[1]
        query_place += query[1]


def few_at_a_time(pair: Block, shape: MaskShape) -> Iterator[Block]:
    """A product cut to a few queries each, without the keys that none of them sees."""
    first, length = pair.query_run
    for start in range(0, length, QUERY_BLOCK):
        query = (first + start, min(QUERY_BLOCK, length - start))
        if not shape.sees_any(query, pair.key_run):
            continue
        begin = pair.query.start + start
        seen = shape.cut(query, pair.key_run)
        key = slice(pair.key.start, pair.key.start + seen[1])
        yield Block(slice(begin, begin + query[1]), key, query, seen, not shape.sees_all(query, seen))


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
        fused = fused_parts.takes(self._q, k, v)
        for pair in pairs(queries, keys, self._scoring.shape):
            if fused and self._scoring.is_plain(pair):
                self._add_fused(k, v, pair)
                continue
            for block in few_at_a_time(pair, self._scoring.shape):
                self._add_block(k, v, block)

    def _add_fused(self, k: Tensor, v: Tensor, pair: Block) -> None:
        """A part made by a kernel: its output is divided by the sum already."""
        inputs = (self._q[:, :, pair.query], k[:, :, pair.key], v[:, :, pair.key])
        out, log_sum = fused_parts.forward(*inputs, self._scoring.scale, causal=pair.masked)
        self._merge(pair.query, out.float(), log_sum, torch.ones_like(log_sum))

    def _add_block(self, k: Tensor, v: Tensor, block: Block) -> None:
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
    """What a backward needs of the merged attention: queries, output, its gradient, log-sums, and for each query the
    product of output and gradient."""

    q: Tensor
    output: Tensor
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
        fused = fused_parts.takes(self.q, k, v)
        totals = (to_q, to_k, to_v)
        for pair in pairs(queries, keys, self.scoring.shape):
            if fused and self.scoring.is_plain(pair):
                self._add_fused(k, v, pair, totals)
                continue
            for block in few_at_a_time(pair, self.scoring.shape):
                self._add_block(k, v, block, totals)
        return to_k, to_v

    def _add_fused(self, k: Tensor, v: Tensor, pair: Block, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        """Add a pair's gradients, made by a kernel, to those of (q, k, v)."""
        whole = (self.output[:, :, pair.query], self.log_sum[:, :, pair.query])
        found = fused_parts.backward(
            self.gradient[:, :, pair.query],
            (self.q[:, :, pair.query], k[:, :, pair.key], v[:, :, pair.key]),
            whole,
            self.scoring.scale,
            causal=pair.masked,
        )
        for total, place, gradient in zip(totals, (pair.query, pair.key, pair.key), found, strict=True):
            total[:, :, place] += gradient

    def _add_block(self, k: Tensor, v: Tensor, block: Block, totals: tuple[Tensor, Tensor, Tensor]) -> None:
        to_q, to_k, to_v = totals
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
