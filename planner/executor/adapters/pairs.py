"""The two small matrices beside a frozen weight: y = W x + scale B A x (Hu et al. 2021, equation 3).

Of a column-parallel linear B is divided like the outputs and A is whole; of a row-parallel one A is divided like the
inputs and B is whole. What is whole has a part of its gradient on each rank, which is summed once a step. What a
row-parallel pair adds is a partial sum like the linear's own, so that both leave the region in one message.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cost_models.operators import LoraAdapter
from planner.executor.model.operators.experts import grouped_product
from planner.executor.model.parameters import Initial, Maker, normal, zeros
from planner.executor.model.tensor_parallel import local
from planner.executor.weight_gradients import CanDefer, linear

DOWN = "a"
UP = "b"


@dataclass(frozen=True, slots=True)
class AdapterOptions:
    """Linears that have adapters (none named: all), and `scale`, what is added is multiplied by (alpha over rank).

    With `zero` B begins at zero, as is usual, so that the first step is the base's own. Without it gradients of A are
    not all zero in that step: what comparisons of layouts want.
    """

    targets: tuple[str, ...] = ()
    scale: float = 1.0
    zero: bool = True


def even(tensor: Tensor, generator: torch.Generator) -> None:
    """A as the peft library draws it: uniform within 1 / sqrt(in) (Kaiming with slope sqrt(5), lora/layer.py)."""
    bound = tensor.shape[-1] ** -0.5
    tensor.uniform_(-bound, bound, generator=generator)


class Pair(CanDefer):
    """The adapter of one part of a linear."""

    def __init__(self, operator: LoraAdapter, features: int, maker: Maker, options: AdapterOptions) -> None:
        super().__init__()
        self.scale = options.scale
        split = operator.split
        sliced = maker.options.tensor_parallel.splits_sequence
        down = Initial(
            (operator.rank, operator.in_features),
            even,
            shard=1 if split == "row" else None,
            partial=split == "column" or (split == "replicated" and sliced),
        )
        up = Initial(
            (features, operator.rank),
            zeros if options.zero else normal,
            shard=0 if split == "column" else None,
            partial=split == "row" or (split == "replicated" and sliced),
        )
        self.a = maker.make(DOWN, down)
        self.b = maker.make(UP, up)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> what is added to the linear's output [..., features]."""
        middle = linear(x, local(self.a), None, self.weight_gradients)
        return linear(middle * self.scale, local(self.b), None, self.weight_gradients)


class ExpertPair(torch.nn.Module):
    """One adapter for each expert of the rank. Halves of a gated linear share A, and have a B each."""

    def __init__(
        self, operator: LoraAdapter, names: Sequence[str], maker: Maker, options: AdapterOptions
    ) -> None:
        super().__init__()
        self.scale = options.scale
        self.names = tuple(f"{UP}_{name}" for name in names) if len(names) > 1 else (UP,)
        column = operator.split == "column"
        down = Initial(
            (operator.experts, operator.rank, operator.in_features),
            even,
            shard=None if column else 2,
            partial=column,
            expert=True,
        )
        up = Initial(
            (operator.experts, operator.out_features // len(self.names), operator.rank),
            zeros if options.zero else normal,
            shard=1 if column else None,
            partial=not column,
            expert=True,
        )
        self.a = maker.make(DOWN, down)
        for name in self.names:
            setattr(self, name, maker.make(name, up))

    def forward(self, rows: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
        """Rows in expert order -> what is added to each half of the linear's output."""
        middle = grouped_product(rows, local(self.a), counts) * self.scale
        return tuple(grouped_product(middle, local(getattr(self, name)), counts) for name in self.names)
