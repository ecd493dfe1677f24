"""A contiguous segment of layers: what one pipeline stage (or the whole model) calls."""

from dataclasses import dataclass

from torch import Tensor, nn

from planner.executor.model.chunked_head import ChunkedHead
from planner.executor.model.loss import class_loss_sum, token_loss_sum
from planner.executor.model.options import ChunkCut
from planner.executor.model.tensor_parallel import TensorParallel


@dataclass(frozen=True, slots=True)
class LossShape:
    """What the last chunk's output is compared with; `fused`: the logits' storage becomes their gradient's."""

    tokens: bool
    vocab_size: int
    tp: TensorParallel
    fused: bool = False

    def total(self, output: Tensor, targets: Tensor) -> Tensor:
        """The SUM over valid positions (tokens) or samples (classes) of the loss, in fp32; a sum already made stays."""
        if output.dim() == 0:
            return output
        if self.tokens:
            return token_loss_sum(output, targets, self.tp, self.vocab_size, fused=self.fused)
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
        layers = list(self.layers.values())
        for layer in layers[:-1]:
            x = layer(x)
        x = layers[-1](x, targets) if self.takes_targets else layers[-1](x)
        return x if targets is None else self.loss.total(x, targets)

    @property
    def takes_targets(self) -> bool:
        """Whether the loss is made inside, so that the whole logits never exist: then give the targets to forward."""
        return self.cut.last and isinstance(list(self.layers.values())[-1], ChunkedHead)

    def loss_sum(self, output: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses from the last chunk's output."""
        return self.loss.total(output, targets)


def last_output(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The output of a last chunk (or of what wraps one), for its loss function: logits, or the sum where it is made
    inside."""
    chunk = getattr(module, "module", module)
    output: Tensor = module(x, targets) if getattr(chunk, "takes_targets", False) else module(x)
    return output
