"""Copies of tokens to their experts and back: permutation on the rank, all-to-all between ranks.

Without a capacity every copy travels, in messages of uneven sizes. With one the router has left out what is too much,
and every expert is padded to the capacity, so that sizes are even and known.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cost_models.operators import Combine, Dispatch, Router
from planner.executor.model.expert_parallel import Route, exchange, swap_counts
from planner.executor.model.gathering import gather, gathered, scatter
from planner.executor.model.operators.balance import capacity_of
from planner.executor.model.operators.site import Site


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies in expert order: the token and the flat place (token x top_k + choice) of each, how many each expert has,
    and which are no padding (None: all)."""

    tokens: Tensor
    places: Tensor
    counts: Tensor
    real: Tensor | None = None


class DispatchModule(nn.Module):
    """Copies every token once per chosen expert, in expert order, on the rank of the expert."""

    def __init__(self, operator: Dispatch, site: Site) -> None:
        super().__init__()
        self.top_k = operator.top_k
        router = next(op for op in site.kind.operators if isinstance(op, Router))
        self.experts = router.experts
        self.group = site.experts

    def forward(self, x: Tensor, weights: Tensor, experts: Tensor) -> tuple[Tensor, Tensor, Route, Tensor]:
        """Tokens [B, S, H], their choices [B x S, top_k] -> rows, rows of each of the rank's experts, the way back, and
        the rows' weights."""
        rows, group = x.reshape(-1, x.shape[-1]), self.group
        own_tokens = rows.shape[0]
        if group.etp > 1:
            rows, weights = gather(rows, group.etp_group), gather(weights, group.etp_group)
            experts = gathered(experts, group.etp_group)
        copies = self._copies(experts, own_tokens)
        route = Route(copies.tokens, rows.shape[0])
        rows = rows.index_select(0, copies.tokens)
        weights = weights.reshape(-1).index_select(0, copies.places)
        if copies.real is not None:
            weights = weights * copies.real
        if group.ep == 1:
            return rows, copies.counts, route, weights
        return self._send(rows, weights, copies.counts, route)

    def _copies(self, experts: Tensor, own_tokens: int) -> _Copies:
        """Sorted by expert; a choice of no expert (one that the router left out) is dropped."""
        flat = experts.reshape(-1)
        places = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.experts + 1)
        ranks = max(len(self.group.balance.parts), 1)
        capacity = capacity_of(self.group.balance, own_tokens // ranks, self.top_k, self.experts)
        if not capacity:
            return _Copies(places // self.top_k, places, counts[: self.experts])
        return self._padded(places, counts[: self.experts], capacity * ranks * self.group.etp)

    def _padded(self, places: Tensor, counts: Tensor, capacity: int) -> _Copies:
        """As many copies of each expert as it takes; padding repeats the first token at weight zero."""
        kept = int(counts.sum())
        ids = torch.arange(self.experts, device=counts.device).repeat_interleave(counts, output_size=kept)
        starts = counts.cumsum(0) - counts
        slots = ids * capacity + torch.arange(kept, device=counts.device) - starts[ids]
        padded = places.new_full((self.experts * capacity,), -1)
        padded[slots] = places[:kept]
        real, padded = padded >= 0, padded.clamp(min=0)
        return _Copies(padded // self.top_k, padded, torch.full_like(counts, capacity), real)

    def _send(
        self, rows: Tensor, weights: Tensor, counts: Tensor, route: Route
    ) -> tuple[Tensor, Tensor, Route, Tensor]:
        """To the ranks of the experts, where rows of all sources are sorted by expert."""
        group = self.group
        by_rank = counts.view(group.ep, -1)
        by_source = swap_counts(by_rank, group.ep_group)
        sent, received = (tuple(each.sum(1).tolist()) for each in (by_rank, by_source))
        rows = exchange(rows, sent, received, group.ep_group)
        weights = exchange(weights, sent, received, group.ep_group)
        order = None
        if by_rank.shape[1] > 1:
            ids = torch.arange(by_rank.shape[1], device=counts.device).repeat(group.ep)
            order = ids.repeat_interleave(by_source.reshape(-1), output_size=sum(received)).argsort(
                stable=True
            )
            rows, weights = rows.index_select(0, order), weights.index_select(0, order)
        route = Route(route.tokens, route.num_tokens, sent, received, order)
        return rows, by_source.sum(0), route, weights


class CombineModule(nn.Module):
    """The sum of each token's copies, on the token's rank."""

    def __init__(self, operator: Combine, site: Site) -> None:
        super().__init__()
        self.group = site.experts

    def forward(self, rows: Tensor, like: Tensor, route: Route) -> Tensor:
        """Rows in expert order -> [B, S, H] in the shape of the tensor that was dispatched."""
        group = self.group
        if group.ep > 1:
            if route.order is not None:
                rows = rows.index_select(0, _inverse(route.order))
            rows = exchange(rows, route.received, route.sent, group.ep_group)
        summed: Tensor = _SumRows.apply(rows, route.tokens, route.num_tokens)  # type: ignore[no-untyped-call]
        if group.etp > 1:
            summed = scatter(summed, group.etp_group)
        return summed.view(*like.shape[:2], -1)


class _SumRows(torch.autograd.Function):
    """Rows added up by token; torch's own index_add keeps the rows for their shape."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, tokens: Tensor, num_tokens: int) -> Tensor:
        ctx.save_for_backward(tokens)
        return rows.new_zeros((num_tokens, rows.shape[-1])).index_add_(0, tokens, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        (tokens,) = ctx.saved_tensors
        return gradients[0].index_select(0, tokens), None, None


def _inverse(order: Tensor) -> Tensor:
    found = torch.empty_like(order)
    found[order] = torch.arange(len(order), device=order.device)
    return found
