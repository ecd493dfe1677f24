"""Where a rank stands among those that share routed experts, and how rows of tokens travel between them.

Experts are divided over ep ranks, the features of each over etp ranks. A rank's tokens are its own: those of its data
rank, its share of the positions under context parallelism, and of these its tensor-parallel slice (under sequence
parallelism as they lie, else cut for the experts alone). Members of an etp group first gather each other's tokens;
copies then go to the rank of their expert and back in all-to-alls of uneven sizes (Lepikhin et al. 2020, section 3.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True)
class Balance:
    """How the load of experts is kept even, and where it is cut.

    `capacity` above 0: an expert takes at most ceil(tokens x top_k / experts x capacity) copies of one rank's tokens of
    a micro-batch, those of the largest weights, and is padded to it. `auxiliary` is the factor of the load-balancing
    loss of one micro-batch, in which `by_sequence` counts every sequence apart. `group`: ranks that hold parts of the
    same micro-batch. `parts`: slices of the positions that ranks hold, replayed by one process.
    """

    capacity: float = 0.0
    auxiliary: float = 0.0
    by_sequence: bool = False
    group: dist.ProcessGroup | None = None
    parts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ExpertParallel:
    """One rank of the ("ep", "etp") mesh. The default: every rank holds all experts whole."""

    mesh: DeviceMesh | None = None
    ep: int = 1
    etp: int = 1
    ep_rank: int = 0
    etp_rank: int = 0
    balance: Balance = field(default_factory=Balance)

    @property
    def ep_group(self) -> dist.ProcessGroup:
        """Ranks that exchange copies; only where ep > 1."""
        return self._mesh["ep"].get_group()

    @property
    def etp_group(self) -> dist.ProcessGroup:
        """Ranks that share each expert; only where etp > 1."""
        return self._mesh["etp"].get_group()

    @property
    def _mesh(self) -> DeviceMesh:
        if self.mesh is None:
            raise RuntimeError(f"experts over ep {self.ep} x etp {self.etp} have no mesh; give one")
        return self.mesh


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """The way of one micro-batch's copies to their experts and back: the token of each copy that this rank sends, rows
    sent to and received from every ep rank, and the place in expert order of each received row (None: as they came)."""

    tokens: Tensor
    num_tokens: int
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    order: Tensor | None = None


def exchange(rows: Tensor, sent: Sequence[int], received: Sequence[int], group: dist.ProcessGroup) -> Tensor:
    """Rows [sum(sent), ...] to the ranks of the group in order -> rows [sum(received), ...]; back in backward."""
    found: Tensor = _Exchange.apply(rows, sent, received, group)  # type: ignore[no-untyped-call]
    return found


def swap_counts(counts: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[ranks, ...] by destination -> [ranks, ...] by source; no gradient."""
    found = torch.empty_like(counts)
    dist.all_to_all_single(found, counts.contiguous(), group=group)
    return found


class _Exchange(torch.autograd.Function):
    """All-to-all of uneven numbers of rows."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: dist.ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        return _all_to_all(rows, sent, received, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        return _all_to_all(gradients[0], ctx.received, ctx.sent, ctx.group), None, None, None


def _all_to_all(
    rows: Tensor, sent: Sequence[int], received: Sequence[int], group: dist.ProcessGroup
) -> Tensor:
    found = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(found, rows.contiguous(), list(received), list(sent), group=group)
    return found
