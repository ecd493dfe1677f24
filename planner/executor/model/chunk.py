"""A contiguous segment of layers: what one pipeline stage (or the whole model) calls."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from planner.executor.model.loss import class_loss_sum, token_loss_sum
from planner.executor.model.options import ChunkCut
from planner.executor.model.tensor_parallel import TensorParallel


@dataclass(frozen=True, slots=True)
class LossShape:
    """What the last chunk's output is compared with."""

    tokens: bool
    vocab_size: int
    tp: TensorParallel

    def total(self, output: Tensor, targets: Tensor) -> Tensor:
        """The SUM over valid positions (tokens) or samples (classes) of the loss, in fp32."""
        if self.tokens:
            return token_loss_sum(output, targets, self.tp, self.vocab_size)
        return class_loss_sum(output, targets)


class ChunkModule(nn.Module):
    """Layers in order, keyed by their global index."""

    def __init__(self, layers: dict[int, nn.Module], cut: ChunkCut, loss: LossShape) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): layer for index, layer in layers.items()})
        self.cut = cut
        self.loss = loss

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """The boundary tensor; on the last chunk the rank's logits, or with targets the sum of the losses.

        x is the batch's ids [B, S] (images [B, 3, side, side]) on the first chunk, else a boundary tensor.
        """
        for layer in self.layers.values():
            x = layer(x)
        return x if targets is None else self.loss.total(x, targets)

    def loss_sum(self, output: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses from the last chunk's output."""
        return self.loss.total(output, targets)


LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Output of the last chunk and targets -> a scalar sum."""
