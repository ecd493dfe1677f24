"""Low-rank adapters of a block that is used in several places, one for each."""

from typing import Literal

from cost_models.operators.base import (
    Kernel,
    KernelKind,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Style,
    Tensor,
)
from cost_models.units import Num


class AdapterBank(Operator):
    """`choices` pairs of matrices in x rank and rank x out, of which one use of the block runs one (Zamba 2).

    The pairs belong to the shared block, so they are stored with it, every rank holding all of them whole.
    """

    family: Literal["adapter_bank"] = "adapter_bank"
    choices: int
    in_features: int
    rank: int
    out_features: int

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """All pairs; they are no part of `matrix` counts beyond the one that runs."""
        each = self.rank * (self.in_features + self.out_features)
        idle = (self.choices - 1) * each
        return (
            ParameterGroup(f"{self.name}.used", each),
            ParameterGroup(f"{self.name}.idle", idle, matrix=False),
        )

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """2 m n k FLOPs of both matrices, forward and for both gradients."""
        rows, rank = at.sp_tokens, float(self.rank)
        found: list[Kernel] = []
        for n, k in ((rank, float(self.in_features)), (float(self.out_features), rank)):
            flops, moved = 2.0 * rows * n * k, (rows * k + k * n + rows * n) * style.compute_bytes
            found += [
                Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, rows, n, k),
                Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, flops, moved, rows, k, n),
                Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, flops, moved, k, n, rows),
            ]
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """Tokens x input features."""
        return at.sp_tokens * self.in_features

    def elements_out(self, at: Shard) -> Num:
        """Tokens x output features."""
        return at.sp_tokens * self.out_features

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input and the narrow features."""
        narrow = Tensor(f"{self.name}.narrow", at.sp_tokens * self.rank)
        return (Tensor(self.inputs[0], self.elements_in(at)), narrow)

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x rank x (in + out)."""
        return 2.0 * at.sequences * at.seq_len * self.rank * (self.in_features + self.out_features)
