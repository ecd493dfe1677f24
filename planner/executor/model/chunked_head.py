"""The last layer where the logits of all positions never exist at once."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from planner.executor.model.block import Block
from planner.executor.model.recompute import run_again
from planner.executor.model.segments import Segment
from planner.executor.model.tensor_parallel import TensorParallel


class ChunkedHead(Block):
    """The last layer where logits exist for a share of the positions at a time: given targets, it returns the sum of
    their losses, and makes each share's logits again for its backward."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        segments: Sequence[Segment],
        tp: TensorParallel,
        kept: str = "",
        *,
        chunks: int,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """`segments` end before the last two modules, the output matrix and the soft cap."""
        super().__init__(modules, segments, tp, kept)
        self.chunks = chunks
        self.loss_of = loss
        self.tail = tuple(modules)[-2:]

    def forward(
        self, x: Tensor, ids: Tensor | None = None, targets: Tensor | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """All logits, or the sum of the losses; and what is handed out beside them."""
        hidden, *beside = self._run(x, ids)
        found = self._logits(hidden) if targets is None else self._losses(hidden, targets)
        return (found, *beside) if self.kept else found

    def _losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        rows = hidden.flatten(0, 1).chunk(self.chunks)
        wanted = targets.flatten().chunk(self.chunks)
        losses = [run_again(self._loss, pair, random=False)[0] for pair in zip(rows, wanted, strict=True)]
        return torch.stack(losses).sum()

    def _logits(self, hidden: Tensor) -> Tensor:
        for name in self.tail:
            hidden = self.calls[name](hidden)
        return hidden

    def _loss(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return (self.loss_of(self._logits(hidden), targets),)
