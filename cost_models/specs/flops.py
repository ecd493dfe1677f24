"""FLOPs of every layer, forward and backward, as two conventions count them; 2 FLOPs a multiply-add.

`model`: the FLOPs that the model needs (docs/models.md): attention over the keys that a query sees, backward twice
the forward. `counter`: what torch's FlopCounterMode reports of a training step of the transformers library: the whole
S x S square of attention whatever the mask, no input gradient where the input is data, and, where a flash kernel runs,
2.5 times the forward for attention's backward, as it makes Q K^T again.
"""

from dataclasses import dataclass
from enum import StrEnum

from cost_models.operators import Attention, Indexer
from cost_models.operators.attention import FLASH_BACKWARD_FACTOR
from cost_models.operators.base import Operator, Shard
from cost_models.specs.counts import sequence_shard
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role


class Convention(StrEnum):
    """Which work counts."""

    MODEL = "model"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Counting:
    """A convention; `flash` (counter only) says whether attention runs as a flash kernel, which computes twice."""

    convention: Convention = Convention.MODEL
    flash: bool = True


@dataclass(frozen=True, slots=True)
class LayerFlops:
    """FLOPs of one layer (or several) for one micro-batch; `attention` is the forward's part in attention's scores."""

    forward: float = 0.0
    backward: float = 0.0
    attention: float = 0.0

    def __add__(self, other: "LayerFlops") -> "LayerFlops":
        return LayerFlops(
            self.forward + other.forward,
            self.backward + other.backward,
            self.attention + other.attention,
        )


def kind_flops(
    kind: LayerKind, at: Shard, counting: Counting | None = None, *, reads_data: bool = False
) -> LayerFlops:
    """FLOPs of one layer of this kind; `reads_data` where the layer's input needs no gradient."""
    how = counting or Counting()
    total = LayerFlops()
    for operator in kind.operators:
        total += _operator_flops(operator, at, how, reads_data and "x" in operator.inputs)
    return total


def layer_flops(
    model: ModelSpec, seq_len: int = 0, counting: Counting | None = None, *, decoder_seq_len: int = 0
) -> tuple[tuple[Layer, LayerFlops], ...]:
    """Each entry of the model's layers with the FLOPs of one of its layers, for one sequence (or image)."""
    found = []
    for layer in model.layers:
        at = sequence_shard(model, layer.stack, seq_len, decoder_seq_len)
        reads_data = layer.role is Role.EMBEDDING
        found.append((layer, kind_flops(model.kinds[layer.kind], at, counting, reads_data=reads_data)))
    return tuple(found)


def step_flops(model: ModelSpec, seq_len: int = 0, counting: Counting | None = None) -> LayerFlops:
    """FLOPs of one training step on one sequence (or image); multi-token-prediction layers are left out."""
    total = LayerFlops()
    for layer, each in layer_flops(model, seq_len, counting):
        if layer.role is not Role.MTP:
            for _ in range(layer.count):
                total += each
    return total


def _operator_flops(operator: Operator, at: Shard, how: Counting, reads_data: bool) -> LayerFlops:
    forward = float(operator.model_flops(at))
    if how.convention is Convention.MODEL:
        return LayerFlops(forward, 2.0 * forward, forward if _is_attention(operator) else 0.0)
    if isinstance(operator, Attention):
        square = float(operator.square_flops(at))
        return LayerFlops(square, square * (FLASH_BACKWARD_FACTOR if how.flash else 2.0), square)
    if isinstance(operator, Indexer):
        return LayerFlops(2.0 * forward, 4.0 * forward, 2.0 * forward)
    return LayerFlops(forward, forward if reads_data else 2.0 * forward)


def _is_attention(operator: Operator) -> bool:
    return isinstance(operator, Attention | Indexer)
