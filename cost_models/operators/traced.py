"""Work that no operator family describes: counted once by running the module without memory, kept as polynomials."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

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
    Transient,
)
from cost_models.specs.base import Frozen
from cost_models.units import Num


class Growth(Frozen):
    """constant + linear L + quadratic L^2 of one sequence of L positions; of a sample where there are images."""

    constant: float = 0.0
    linear: float = 0.0
    quadratic: float = 0.0

    def at(self, length: Num) -> Num:
        """The value for one sequence of this length."""
        return self.constant + length * (self.linear + length * self.quadratic)


class Traced(Operator):
    """One or more modules as a run on tensors without storage counted them.

    `flops` are forward FLOPs of one sequence, all pairs of positions counted; `causal` is the share of the quadratic
    part that model FLOPs count half. `moved` are elements that point-wise work reads and writes, over `launches`
    kernels; `kept` are elements saved for backward by dtype. A length is seq_len, or for images the area over that
    of `image_size`. Nothing in it is divided by tensor or context parallelism (engines refuse both by name).
    """

    family: Literal["traced"] = "traced"
    weights: Annotated[int, Field(ge=0)] = 0
    """Elements of matrices and filters; they multiply tokens."""
    vectors: Annotated[int, Field(ge=0)] = 0
    """Elements of norms, biases and tables."""
    convolution: bool = False
    matmuls: Annotated[int, Field(ge=1)] = 1
    """Products, of `columns` and `depth` in the geometric mean."""
    columns: Annotated[float, Field(ge=1)] = 1.0
    depth: Annotated[float, Field(ge=1)] = 1.0
    flops: Growth = Growth()
    causal: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the quadratic part in which a query sees half of the keys."""
    moved: Growth = Growth()
    launches: Annotated[float, Field(ge=0)] = 0.0
    kept: dict[DtypeRole, Growth] = {}
    reads: dict[str, float] = {}
    """Outputs of other operators that it keeps, by name: elements per position. One storage with theirs."""
    width: Annotated[float, Field(ge=0)] = 0.0
    """Elements of its output per position (per sample where there are images)."""
    image_size: Annotated[int, Field(ge=0)] = 0

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """One full copy on every rank."""
        found = []
        if self.weights:
            found.append(ParameterGroup(f"{self.name}.weights", self.weights))
        if self.vectors:
            found.append(ParameterGroup(f"{self.name}.vectors", self.vectors, matrix=False))
        return tuple(found)

    def _length(self, at: Shard) -> Num:
        if self.image_size:
            return (at.image_size / self.image_size) ** 2
        return at.seq_len

    def elements_in(self, at: Shard) -> Num:
        """Positions x width, as much as it hands on."""
        return at.sequences * self._length(at) * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Products as that many GEMMs of one shape, point-wise work as passes over memory.

        Input gradients repeat the forward products (twice those without weights, the quadratic part), weight
        gradients those with weights; point-wise work moves twice as much backward.
        """
        length = self._length(at)
        plain = at.sequences * (self.flops.constant + length * self.flops.linear)
        pairs = at.sequences * length * length * self.flops.quadratic
        moved = at.sequences * self.moved.at(length) * style.compute_bytes
        found = [
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, moved, count=max(self.launches, 1.0)),
            Kernel(
                Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, 2.0 * moved, count=max(2.0 * self.launches, 1.0)
            ),
        ]
        if self.flops == Growth():
            return tuple(found)
        kind = KernelKind.CONVOLUTION if self.convolution else KernelKind.GEMM
        n, k, count = self.columns, self.depth, float(self.matmuls)
        m = np.maximum((plain + pairs) / (2.0 * count * n * k), 1.0)
        read = count * (m * n + m * k + n * k) * style.compute_bytes
        shapes = (Phase.FORWARD, plain + pairs), (Phase.INPUT_GRADIENT, plain + 2.0 * pairs)
        for phase, flops in (*shapes, (Phase.WEIGHT_GRADIENT, plain)):
            found.append(Kernel(phase, kind, flops, read, m, n, k, count))
        return tuple(found)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """What autograd kept, by dtype."""
        length = self._length(at)
        own = tuple(
            Tensor(f"{self.name}.{role.value}", at.sequences * growth.at(length), role)
            for role, growth in self.kept.items()
        )
        return (
            *own,
            *(Tensor(name, at.sequences * length * elements) for name, elements in self.reads.items()),
        )

    def transient(self, at: Shard, style: Style) -> Transient:
        """Its output forward, gradients of input and output backward."""
        each = self.elements_in(at) * style.compute_bytes
        return Transient(each, 2.0 * each)

    def model_flops(self, at: Shard) -> Num:
        """FLOPs of the products, half of the quadratic part where causal."""
        length = self._length(at)
        seen = 1.0 - 0.5 * self.causal
        plain = self.flops.constant + length * self.flops.linear
        return at.sequences * (plain + seen * length * length * self.flops.quadratic)
