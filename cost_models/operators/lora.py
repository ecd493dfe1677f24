"""Low-rank adapters beside a frozen linear (Hu et al. 2021): y = W x + B (A x), rank r, only A and B trained."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    Transient,
)
from cost_models.operators.moe import expert_rows
from cost_models.units import Num


class LoraAdapter(Operator):
    """One pair of matrices for each output part of a linear, or for each expert of a grouped one.

    Of a column-parallel linear B is divided like the outputs and A is whole; of a row-parallel one A is divided like
    the inputs and B is whole. The sum is added to the linear's output, so its messages are the linear's.
    """

    family: Literal["lora"] = "lora"
    rank: int
    in_features: int
    parts: tuple[int, ...]
    """Output features of every adapted part."""
    split: Literal["column", "row", "replicated"] = "column"
    experts: int = 0
    top_k: int = 0

    @property
    def out_features(self) -> int:
        """Adapted output features."""
        return sum(self.parts)

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """A of rank x in for every part, B of out x rank."""
        down, up = len(self.parts) * self.rank * self.in_features, self.out_features * self.rank
        if self.experts:
            whole = self.experts * (down + up)
            return (ParameterGroup(f"{self.name}.pairs", whole, Split.EXPERT),)
        inside = Split.TP if self.split == "row" else Split.NONE
        outside = Split.TP if self.split == "column" else Split.NONE
        return (
            ParameterGroup(f"{self.name}.a", down, inside),
            ParameterGroup(f"{self.name}.b", up, outside),
        )

    def _rows(self, at: Shard, style: Style) -> Num:
        if self.experts:
            return expert_rows(at, style, self.top_k)
        return at.sp_tokens if self.split == "replicated" else at.tokens

    def _local(self, at: Shard) -> tuple[Num, Num]:
        """Input and output features on one rank."""
        ways = at.etp if self.experts else at.tp
        inside = self.in_features / (ways if self.split == "row" else 1.0)
        outside = self.out_features / (ways if self.split == "column" else 1.0)
        return inside, outside

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Both products forward and for both gradients; weights of all local experts are read."""
        rows, (inside, outside) = self._rows(at, style), self._local(at)
        local = self.experts / at.ep if self.experts else 1.0
        kind = KernelKind.GROUPED_GEMM if self.experts else KernelKind.GEMM
        middle = float(self.rank * len(self.parts))
        m = rows / local
        found: list[Kernel] = []
        for n, k in ((middle, inside), (outside, float(self.rank))):
            flops = 2.0 * rows * n * k
            moved = (rows * k + local * k * n + rows * n) * style.compute_bytes
            found += [
                Kernel(Phase.FORWARD, kind, flops, moved, m, n, k, local),
                Kernel(Phase.INPUT_GRADIENT, kind, flops, moved, m, k, n, local),
                Kernel(Phase.WEIGHT_GRADIENT, kind, flops, moved, k, n, m, local),
            ]
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """Tokens x local input features; rows of experts cannot be known without the style."""
        return 0.0 if self.experts else at.tokens * self._local(at)[0]

    def elements_out(self, at: Shard) -> Num:
        """Tokens x local output features."""
        return 0.0 if self.experts else at.tokens * self._local(at)[1]

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The linear's input, which A's gradient needs, and A x."""
        rows, (inside, _) = self._rows(at, style), self._local(at)
        elements = rows * inside
        if self.split == "column" and style.sp_saves_shard and not self.experts:
            elements = elements / at.sp_ways
        middle = rows * float(self.rank * len(self.parts))
        return (Tensor(self.inputs[0], elements), Tensor(f"{self.name}.middle", middle))

    def transient(self, at: Shard, style: Style) -> Transient:
        """The output before it is added; gradients of input and output."""
        rows, (inside, outside) = self._rows(at, style), self._local(at)
        size = style.compute_bytes
        return Transient(np.asarray(rows * outside * size), np.asarray(rows * (inside + outside) * size))

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens (times top_k for experts) x elements of one pair."""
        rows = at.sequences * at.seq_len * (self.top_k if self.experts else 1)
        each = len(self.parts) * self.rank * self.in_features + self.out_features * self.rank
        return 2.0 * rows * each
