"""A contiguous segment of layers: what one pipeline stage (or the whole model) calls."""

from dataclasses import dataclass

from torch import Tensor, nn

from planner.executor.model.chunked_head import ChunkedHead
from planner.executor.model.loss import class_loss_sum, token_loss_sum
from planner.executor.model.options import ChunkCut
from planner.executor.model.prediction import Wanted, unpacked
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


@dataclass(frozen=True, slots=True)
class Predictions:
    """Keys of the trained multi-token-prediction layers, and the weight of the mean of their losses."""

    layers: tuple[str, ...] = ()
    weight: float = 0.0


class ChunkModule(nn.Module):
    """Layers in order, keyed by their global index."""

    def __init__(
        self,
        layers: dict[int, nn.Module],
        cut: ChunkCut,
        loss: LossShape,
        predictions: Predictions | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(index): layer for index, layer in layers.items()})
        self.cut = cut
        self.loss = loss
        self.predictions = predictions or Predictions()

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """The boundary tensor; on the last chunk the rank's logits, or with targets the sum of the losses.

        x is the batch's ids [B, S] (images [B, 3, side, side]) on the first chunk, else a boundary tensor. Where
        prediction layers are trained, targets are packed (planner.executor.model.prediction).
        """
        main = [layer for name, layer in self.layers.items() if name not in self.predictions.layers]
        for layer in main[:-1]:
            x = layer(x)
        if targets is None:
            found = main[-1](x)
            output: Tensor = found[0] if isinstance(found, tuple) else found
            return output
        if not self.predictions.layers:
            return self._loss(main[-1], x, targets)[0]
        return self._with_predictions(main[-1], x, unpacked(targets, len(self.predictions.layers)))

    def _with_predictions(self, head: nn.Module, x: Tensor, wanted: Wanted) -> Tensor:
        """The model's own loss and the weighted mean of what each prediction layer adds; each goes on from the one
        before."""
        total, hidden = self._loss(head, x, wanted.targets)
        share = self.predictions.weight / len(self.predictions.layers)
        for name, ids, later in zip(self.predictions.layers, wanted.ids, wanted.later, strict=True):
            loss, hidden = self._loss(self.layers[name], hidden, later, ids)
            total = total + share * loss
        return total

    def _loss(
        self, layer: nn.Module, x: Tensor, targets: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum of the losses of a layer with a head, and what it hands out for the next one (else its input)."""
        found = layer(x, ids, targets) if isinstance(layer, ChunkedHead) else layer(x, ids)
        output, hidden = found if isinstance(found, tuple) else (found, x)
        return self.loss.total(output, targets), hidden

    @property
    def takes_targets(self) -> bool:
        """Whether the loss is made inside (whole logits never exist, or several layers have losses): then give the
        targets to forward."""
        head = list(self.layers.values())[-1]
        return self.cut.last and (isinstance(head, ChunkedHead) or bool(self.predictions.layers))

    def loss_sum(self, output: Tensor, targets: Tensor) -> Tensor:
        """Sum of the losses from the last chunk's output."""
        return self.loss.total(output, targets)


def last_output(module: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """The output of a last chunk (or of what wraps one), for its loss function: logits, or the sum where it is made
    inside."""
    chunk = module
    for wrapper in ("module", "inner"):
        chunk = getattr(chunk, wrapper, chunk)
    output: Tensor = module(x, targets) if getattr(chunk, "takes_targets", False) else module(x)
    return output
