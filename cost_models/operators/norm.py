"""Normalisations over the hidden width."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    DtypeRole,
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    memory_kernels,
)
from cost_models.units import Num


class Norm(Operator):
    """RMSNorm or LayerNorm over `width` elements, `groups` times per token (heads for a query/key norm).

    `sharded` norms stand inside a tensor-parallel region, so each rank normalises its own heads; the others run on the
    sequence-parallel tokens. The weight is a full copy on every rank. `shared_weight` counts one weight of `width` for
    all groups.
    """

    family: Literal["norm"] = "norm"
    kind: Literal["rms", "layer"] = "rms"
    width: int
    groups: int = 1
    sharded: bool = False
    weight: bool = True
    bias: bool = False
    shared_weight: bool = True
    max_shards: int = 0
    offset: bool = False
    """The weight counts from one, and the library multiplies by it in fp32 (Gemma)."""
    input_width: int = 0
    """Above 0: the input is a part of a tensor of so many features, which lives on with it."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Weight and bias of `width` (times groups when each group has its own)."""
        elements = self.width if self.shared_weight else self.width * self.groups
        split = Split.TP if self.sharded and not self.shared_weight else Split.NONE
        found = []
        if self.weight:
            found.append(ParameterGroup(f"{self.name}.weight", elements, split, matrix=False))
        if self.bias:
            found.append(ParameterGroup(f"{self.name}.bias", elements, split, matrix=False))
        return tuple(found)

    def _groups(self, at: Shard) -> Num:
        if not self.sharded:
            return at.sp_tokens * self.groups
        ways = np.minimum(at.tp, self.max_shards) if self.max_shards else at.tp
        return at.tokens * self.groups / ways

    def elements_in(self, at: Shard) -> Num:
        """Normalised elements on one rank."""
        return self._groups(at) * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One pass where fused, as LayerNorm always is; a written-out RMSNorm is a chain of kernels in fp32.

        Bytes an element of c bytes: forward the cast (c + 4), square (8), mean (4), scale (8), cast back (4 + c) and
        weight (2 c); backward the gradients of the weight and its input (6 c), cast (c + 4), the gradients of the
        scaled (8), of the scale (16) and of the square (16), their sum (12) and the cast back (4 + c).
        """
        elements, each = self.elements_in(at), style.compute_bytes
        if style.fused_norm or self.kind == "layer":
            return memory_kernels(2.0 * elements * each, 3.0 * elements * each)
        cast = each + 4.0 if style.upcasts else 0.0
        forward = Kernel(
            Phase.FORWARD, KernelKind.MEMORY, 0.0, elements * (20.0 + 2.0 * (cast + each)), count=6.0
        )
        backward = Kernel(
            Phase.INPUT_GRADIENT,
            KernelKind.MEMORY,
            0.0,
            elements * (52.0 + 2.0 * cast + 6.0 * each),
            count=12.0,
        )
        return forward, backward

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input and fp32 statistics; unfused RMSNorm keeps an fp32 copy and the normalised tensor instead.

        In fp32 the copy is the input itself, and with it whatever tensor it is a part of.
        """
        elements, rows = self.elements_in(at), self._groups(at)
        layer = self.kind == "layer"
        exact = DtypeRole.COMPUTE if style.cpu_kernels and layer else DtypeRole.FP32
        statistics = Tensor(f"{self.name}.rstd", rows * (2.0 if layer else 1.0), exact)
        if style.fused_norm or layer:
            return (Tensor(self.inputs[0], elements), statistics)
        whole = self.input_width if self.input_width and not style.upcasts else self.width
        wide = DtypeRole.FP32 if self.offset else DtypeRole.COMPUTE
        held = (
            Tensor(f"{self.name}.input_fp32", rows * whole, DtypeRole.FP32),
            Tensor(f"{self.name}.normalised", elements, wide),
            statistics,
        )
        offset = Tensor(f"{self.name}.offset", float(self.width), DtypeRole.FP32)
        return (*held, offset) if self.offset else held
