"""Convolutional networks: convolution, batch normalisation, pooling. `downsample` is the cumulative stride so far."""

import math
from typing import Final, Literal

from cost_models.operators.base import (
    DtypeRole,
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Style,
    Tensor,
    memory_kernels,
)
from cost_models.units import Num

IMAGE_CHANNELS: Final = 4
"""Most channels of an image; what reads one has no gradient to hand on."""

MINIMAL_SIZE: Final = 3
"""Width of the filters that minimal filtering (Winograd) is made for."""


TRANSPOSED: Final = 1.6
"""[Empirical] passes over the operands of a convolution whose tensors lie channels first, beside its own: tensor cores
want channels last, so operands are read and written once more (nchwToNhwcKernel in public traces), two passes but for
kernels that read channels first (profiles/published: tf32 runs of dle, mxnet, paddle, tensorflow)."""

FULL_BYTES: Final = 4.0
"""Bytes of an element in 32 bits; of these only tf32 is transposed, where kernels are priced (cost_models.roofline)."""

PASSES: Final = {"relu": (2.0, 3.0), "add": (3.0, 3.0)}
PASSES_FUSED: Final = {"relu": (0.0, 2.0), "add": (1.0, 3.0)}
"""Passes over memory forward and backward of point-wise operators, run alone and fused into their neighbours."""


def positions(at: Shard, downsample: int) -> Num:
    """Spatial positions of one micro-batch after a cumulative stride of `downsample`."""
    side = math.ceil(at.image_size / downsample)
    return at.sequences * float(side * side)


class Conv2d(Operator):
    """A square convolution; `downsample` is the cumulative stride after it."""

    family: Literal["conv2d"] = "conv2d"
    in_channels: int
    out_channels: int
    kernel_size: int
    stride: int = 1
    downsample: int
    groups: int = 1
    bias: bool = False

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Out x in / groups x kernel^2, and a bias."""
        weight = self.out_channels * self.in_channels // self.groups * self.kernel_size**2
        found = [ParameterGroup(f"{self.name}.weight", weight)]
        if self.bias:
            found.append(ParameterGroup(f"{self.name}.bias", self.out_channels, matrix=False))
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """Positions before the stride x input channels."""
        return positions(at, max(self.downsample // self.stride, 1)) * self.in_channels

    def elements_out(self, at: Shard) -> Num:
        """Positions after the stride x output channels."""
        return positions(at, self.downsample) * self.out_channels

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """As an implicit GEMM of positions x out channels x (in channels x kernel^2); its input gradient is a
        convolution of the output gradient, positions x in channels x (out channels x kernel^2). Images need none."""
        m, n = positions(at, self.downsample), float(self.out_channels)
        k = self.in_channels / self.groups * self.kernel_size**2
        flops = 2.0 * m * n * k
        moved = (self.elements_in(at) + self.elements_out(at) + n * k) * style.compute_bytes
        shapes = {Phase.FORWARD: (m, n, k), Phase.INPUT_GRADIENT: self._backward_shape(m)}
        if self.in_channels <= IMAGE_CHANNELS and self.downsample == self.stride:
            del shapes[Phase.INPUT_GRADIENT]
        shapes[Phase.WEIGHT_GRADIENT] = (k, n, m)
        minimal = self.kernel_size == MINIMAL_SIZE and self.stride == 1 and self.groups == 1
        products = tuple(
            Kernel(phase, KernelKind.CONVOLUTION, flops, moved, *shape, minimal=minimal)
            for phase, shape in shapes.items()
        )
        if not style.channels_first or style.compute_bytes >= FULL_BYTES:
            return products
        transposes = (Kernel(phase, KernelKind.MEMORY, 0.0, TRANSPOSED * moved) for phase in shapes)
        return (*products, *transposes)

    def _backward_shape(self, rows: Num) -> tuple[Num, Num, Num]:
        """Output positions stand for input positions; with a stride the FLOPs spread over more of them."""
        return rows, self.in_channels / self.groups, float(self.out_channels * self.kernel_size**2)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input."""
        return (Tensor(self.inputs[0], self.elements_in(at)),)

    def model_flops(self, at: Shard) -> Num:
        """2 x positions x weights."""
        weight = self.out_channels * self.in_channels / self.groups * self.kernel_size**2
        return 2.0 * positions(at, self.downsample) * weight


class BatchNorm(Operator):
    """Batch normalisation over positions; statistics are buffers, not parameters."""

    family: Literal["batch_norm"] = "batch_norm"
    channels: int
    downsample: int

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Weight and bias per channel."""
        return tuple(
            ParameterGroup(f"{self.name}.{part}", self.channels, matrix=False) for part in ("weight", "bias")
        )

    def elements_in(self, at: Shard) -> Num:
        """Positions x channels."""
        return positions(at, self.downsample) * self.channels

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Two reads and a write forward; three reads and a write backward, in two passes."""
        moved = self.elements_in(at) * style.compute_bytes
        return memory_kernels(3.0 * moved, 5.0 * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input and the batch statistics, in fp32 (the CPU keeps them in the compute dtype)."""
        exact = DtypeRole.COMPUTE if style.cpu_kernels else DtypeRole.FP32
        return (
            Tensor(self.inputs[0], self.elements_in(at)),
            Tensor(f"{self.name}.statistics", 2.0 * self.channels, exact),
        )


class Pool(Operator):
    """ReLU, max or average pooling over positions; `saves` says what backward needs."""

    family: Literal["pool"] = "pool"
    kind: Literal["relu", "max", "average", "add"] = "relu"
    channels: int
    downsample: int
    stride: int = 1

    def elements_in(self, at: Shard) -> Num:
        """Positions before the stride x channels."""
        return positions(at, max(self.downsample // self.stride, 1)) * self.channels

    def elements_out(self, at: Shard) -> Num:
        """Positions after the stride x channels (one for a global average)."""
        if self.kind == "average":
            return at.sequences * self.channels
        return positions(at, self.downsample) * self.channels

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Passes: ReLU 2 forward, 3 backward (two gradients and what it kept); an addition 3 forward, and 3 backward
        where the gradients of its two readers are summed; pooling 2 and 2.

        Fused (compiled), the batch normalisation before a ReLU or an addition writes their result: a ReLU costs its two
        reads in that normalisation's backward, an addition one read forward.
        """
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        passes = (PASSES_FUSED if style.fused_activation else PASSES).get(self.kind, (2.0, 2.0))
        return memory_kernels(0.5 * passes[0] * moved, 0.5 * passes[1] * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """ReLU: its output; max pooling: its input and the int64 positions of the maxima; others nothing."""
        if self.kind == "relu":
            return (Tensor(self.name, self.elements_out(at)),)
        if self.kind == "max":
            return (
                Tensor(self.inputs[0], self.elements_in(at)),
                Tensor(f"{self.name}.indices", self.elements_out(at), DtypeRole.INT64),
            )
        return ()
