"""Attention of a rank's queries to the keys of all context-parallel ranks: keys travel around a ring, or are gathered.

A group of one is attention on one rank, for shapes that a fused kernel does not take as they are.

Only the rank's own queries, keys, values and output are kept for the backward; keys come a second time. In a ring the
gradients of keys and values travel with them and arrive, complete, where they belong (Liu et al. 2023, section 3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.gathering import gathered, reduced
from planner.executor.model.operators.partial_attention import Finished, Parts, Scoring

Keys = tuple[Tensor, Tensor]
"""Keys and values [B, kv heads, L, D] of one rank."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The group and how scores are made."""

    context: ContextParallel
    scoring: Scoring


def context_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, setup: Setup) -> Tensor:
    """[B, heads, L, D] of the rank's positions -> [B, heads, L, D of the values]."""
    found: Tensor = _ContextAttention.apply(q, k, v, sinks, setup)  # type: ignore[no-untyped-call]
    return found


class _ContextAttention(torch.autograd.Function):
    """Forward merges parts over every rank's keys; backward sends their gradients home."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, setup: Setup) -> Tensor:
        context, length = setup.context, q.shape[2]
        parts = Parts(q, v.shape[-1], setup.scoring)
        for source, (key, value) in _visits((k, v), context):
            parts.add(key, value, context.runs(length), context.runs(length, source))
        if sinks is not None:
            parts.add_sinks(sinks)
        output = parts.output.to(q.dtype)
        ctx.save_for_backward(q, k, v, output, parts.log_sum, *([] if sinks is None else [sinks]))
        ctx.setup = setup
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        q, k, v, output, log_sum, *sinks = ctx.saved_tensors
        context, length = ctx.setup.context, q.shape[2]
        gradient = gradients[0]
        product = torch.linalg.vecdot(gradient.float(), output.float())
        finished = Finished(q, output, gradient, log_sum, product, ctx.setup.scoring)
        to_q = torch.zeros_like(q, dtype=torch.float32)
        homeward = _Homeward((k, v), context)
        for source, (key, value) in _visits((k, v), context):
            runs = (context.runs(length), context.runs(length, source))
            homeward.add(source, finished.part(key, value, *runs, to_q))
        to_k, to_v = homeward.arrived()
        to_sinks = finished.to_sinks(sinks[0]) if sinks else None
        return to_q.to(q.dtype), to_k.to(k.dtype), to_v.to(v.dtype), to_sinks, None


def _visits(own: Keys, context: ContextParallel) -> Iterator[tuple[int, Keys]]:
    """Keys and values of every rank with the rank they are of, this rank's first."""
    if context.kind == "ring":
        yield from _around(own, context)
        return
    everywhere = [gathered(each, context.ranks).chunk(context.size) for each in own]
    for distance in range(context.size):
        source = (context.rank - distance) % context.size
        yield source, (everywhere[0][source], everywhere[1][source])


def _around(own: Keys, context: ContextParallel) -> Iterator[tuple[int, Keys]]:
    """Each rank hands on to the next what it has, while it works with it."""
    held: Sequence[Tensor] = [each.contiguous() for each in own]
    for distance in range(context.size):
        passing = _Passing(held, context) if distance < context.size - 1 else None
        yield (context.rank - distance) % context.size, (held[0], held[1])
        if passing is not None:
            held = passing.received()


class _Passing:
    """Tensors on their way to the next rank, and those that come from the one before."""

    def __init__(self, tensors: Sequence[Tensor], context: ContextParallel) -> None:
        group = context.ranks
        following = dist.get_global_rank(group, (context.rank + 1) % context.size)
        before = dist.get_global_rank(group, (context.rank - 1) % context.size)
        self._sent = tensors
        self._coming = [torch.empty_like(each) for each in tensors]
        sends = [dist.P2POp(dist.isend, each, following, group) for each in tensors]
        receives = [dist.P2POp(dist.irecv, each, before, group) for each in self._coming]
        self._works = dist.batch_isend_irecv([*sends, *receives])

    def received(self) -> Sequence[Tensor]:
        """What came, when all is there and what was sent has left."""
        for work in self._works:
            work.wait()
        return self._coming


class _Homeward:
    """Gradients of keys and values on their way to the rank that holds them."""

    def __init__(self, own: Keys, context: ContextParallel) -> None:
        self._context = context
        self._travelling: _Passing | None = None
        self._held: Sequence[Tensor] = ()
        gathers = context.kind != "ring"
        shapes = [(context.size, *each.shape) for each in own] if gathers else []
        self._by_source = [own[0].new_zeros(shape, dtype=torch.float32) for shape in shapes]

    def add(self, source: int, gradients: Keys) -> None:
        """The gradients of one rank's keys and values from this rank's queries."""
        if self._by_source:
            for gathering, own in zip(self._by_source, gradients, strict=True):
                gathering[source] = own
            return
        total: Sequence[Tensor] = gradients
        if self._travelling is not None:
            total = [own + come for own, come in zip(gradients, self._travelling.received(), strict=True)]
        self._held = total
        if self._context.size > 1:
            self._travelling = _Passing(total, self._context)

    def arrived(self) -> Keys:
        """Those of this rank's own keys and values, from all ranks."""
        if self._by_source:
            to_k, to_v = (reduced(each.flatten(0, 1), self._context.ranks) for each in self._by_source)
            return to_k, to_v
        to_k, to_v = self._held if self._travelling is None else self._travelling.received()
        return to_k, to_v
