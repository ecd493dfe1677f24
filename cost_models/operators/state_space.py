"""Selective state-space mixers: short causal convolution, Mamba's scan by channel, Mamba 2's chunked scan."""

from typing import Literal

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


class CausalConv(Operator):
    """Depth-wise causal convolution of `kernel_size` over `channels`, divided over tensor-parallel ranks."""

    family: Literal["causal_conv"] = "causal_conv"
    channels: int
    kernel_size: int = 4
    bias: bool = True

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Channels x kernel_size, and a bias."""
        found = [
            ParameterGroup(f"{self.name}.weight", self.channels * self.kernel_size, Split.TP, matrix=False)
        ]
        if self.bias:
            found.append(ParameterGroup(f"{self.name}.bias", self.channels, Split.TP, matrix=False))
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """Tokens x local channels."""
        return at.tokens * self.channels / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One pass forward, two backward."""
        moved = 2.0 * self.elements_in(at) * style.compute_bytes
        return memory_kernels(moved, 2.0 * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input."""
        return (Tensor(self.inputs[0], self.elements_in(at)),)


class StateSpaceScan(Operator):
    """Mamba 2's chunked state-space dual (Dao and Gu 2024, section 6): per head, matmuls inside chunks and a scan of
    states between them. Inputs: x, B, C, dt of one fused tensor."""

    family: Literal["scan"] = "scan"
    heads: int
    head_dim: int
    state: int
    groups: int = 1
    chunk: int = 256

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """A, D and the step bias: one of each per head."""
        return tuple(
            ParameterGroup(f"{self.name}.{part}", self.heads, Split.TP, matrix=False, fp32=part != "dt_bias")
            for part in ("A_log", "D", "dt_bias")
        )

    def _flops_per_token(self) -> float:
        """Multiply-adds x 2: C B^T and its product with x inside a chunk (causal half), states in and out."""
        inside = self.chunk * (self.groups * self.state + self.heads * self.head_dim)
        states = 4.0 * self.heads * self.head_dim * self.state
        return inside + states

    def elements_in(self, at: Shard) -> Num:
        """x, B, C and dt on one rank."""
        width = self.heads * self.head_dim + 2 * self.groups * self.state + self.heads
        return at.tokens * width / at.tp

    def elements_out(self, at: Shard) -> Num:
        """The mixed values."""
        return at.tokens * self.heads * self.head_dim / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Backward makes twice the forward's matmuls and recomputes the chunk states."""
        flops = at.tokens * self._flops_per_token() / at.tp
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.SCAN, flops, 2.0 * moved, count=5.0),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.SCAN, 2.5 * flops, 4.0 * moved, count=7.0),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs, and the fp32 states between chunks; neither where one function runs convolution and scan again
        (mamba_ssm, mamba_split_conv1d_scan_combined: the projection and the scan's output stay)."""
        if style.fused_scan:
            return (Tensor(f"{self.name}.steps", at.tokens * self.heads / at.tp),)
        states = at.tokens / self.chunk * self.heads * self.head_dim * self.state / at.tp
        return (
            Tensor(self.inputs[0], self.elements_in(at)),
            Tensor(f"{self.name}.states", states, DtypeRole.FP32),
        )

    def model_flops(self, at: Shard) -> Num:
        """FLOPs of the chunked algorithm (no common convention counts them; stated in the docs)."""
        return at.sequences * at.seq_len * self._flops_per_token()


SELECTIVE_FLOPS = 9.0
"""FLOPs per token, channel and state of Mamba's scan: exp(dt A), dt B, their products with h and x, the sum, the
product with C and its sum (Gu and Dao 2023, section 3.3, as counted by VMamba 2024, appendix: 9 L D N)."""

SELECTIVE_CHUNK = 2048
"""Tokens between the states that the fused kernel keeps for backward (mamba_ssm, selective_scan_fwd_kernel.cuh)."""


class SelectiveScan(Operator):
    """Mamba's scan (Gu and Dao 2023, algorithm 2): one recurrence of `state` numbers for each of `channels`.

    Inputs: the convolved channels, the step sizes, and B and C, which every rank holds whole.
    """

    family: Literal["selective_scan"] = "selective_scan"
    channels: int
    state: int
    heads: int = 1
    """Groups of channels with a B and a C of their own (Zamba)."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """A by channel and state, D by channel."""
        return (
            ParameterGroup(
                f"{self.name}.A_log", self.channels * self.state, Split.TP, matrix=False, fp32=True
            ),
            ParameterGroup(f"{self.name}.D", self.channels, Split.TP, matrix=False, fp32=True),
        )

    def _mixing(self, at: Shard) -> Num:
        """Elements of B and C on one rank."""
        return at.tokens * 2.0 * self.heads * self.state

    def elements_in(self, at: Shard) -> Num:
        """Channels, steps, B and C on one rank."""
        return 2.0 * at.tokens * self.channels / at.tp + self._mixing(at)

    def elements_out(self, at: Shard) -> Num:
        """The mixed channels."""
        return at.tokens * self.channels / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One fused fp32 pass over the sequence; backward runs it again and then in reverse."""
        flops = self.model_flops(at) / (at.tp * at.cp)
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.SCAN, flops, moved, fp32=True),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.SCAN, 3.0 * flops, 2.0 * moved, fp32=True),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs, and the fp32 states between chunks."""
        each = at.tokens * self.channels / at.tp
        states = each / SELECTIVE_CHUNK * 2.0 * self.state
        names = (*self.inputs, "conv", "steps", "mixing")[:3]
        return (
            Tensor(names[0], each),
            Tensor(names[1], each),
            Tensor(names[2], self._mixing(at)),
            Tensor(f"{self.name}.states", states, DtypeRole.FP32),
        )

    def model_flops(self, at: Shard) -> Num:
        """FLOPs of the recurrence (no common convention counts them; stated in the docs)."""
        return SELECTIVE_FLOPS * at.sequences * at.seq_len * self.channels * self.state
