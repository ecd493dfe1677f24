"""Attention without softmax, computed chunk by chunk: a running state of key x value features for every head."""

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
)
from cost_models.units import Num


class LinearAttention(Operator):
    """softmax-free causal attention in chunks of C positions, for one layer; inputs are the tensors q, k, v.

    Decayed (lightning attention, Qin et al. 2024, algorithm 1): Q K^T and its product with V inside a chunk, Q with
    the state before it, K^T V into the state after it. `delta`: the (gated) delta rule (Yang et al. 2024, "Gated
    Delta Networks", section 3.3) first takes from the values what the state predicts: K K^T, the solution of a
    triangular system for d_k + d_v right-hand sides, and its product with the state. `gated` heads learn a decay,
    one for each key feature where `by_feature` (Kimi Delta Attention, "Kimi Linear", Kimi Team 2025). Each of
    `key_heads` serves heads / key_heads value heads.
    """

    family: Literal["linear_attention"] = "linear_attention"
    heads: int
    key_heads: int
    qk_dim: int
    v_dim: int
    chunk: int = 64
    delta: bool = False
    gated: bool = False
    by_feature: bool = False

    @property
    def _decays(self) -> int:
        """Decays per token."""
        return self.heads * (self.qk_dim if self.by_feature else 1)

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """The decay and its bias of gated heads: one of each per head, or a bias for each key feature."""
        if not self.gated:
            return ()
        return (
            ParameterGroup(f"{self.name}.A_log", self.heads, Split.TP, matrix=False, fp32=True),
            ParameterGroup(f"{self.name}.dt_bias", self._decays, Split.TP, matrix=False),
        )

    def _flops_per_token(self) -> float:
        """Multiply-adds x 2 per token and all heads; half of a chunk's square, as masks and triangles need."""
        inside = float(self.chunk * (self.qk_dim + self.v_dim))
        states = 4.0 * self.qk_dim * self.v_dim
        if self.delta:
            inside += self.chunk * (2.0 * self.qk_dim + self.v_dim)
            states += 2.0 * self.qk_dim * self.v_dim
        return self.heads * (inside + states)

    def elements_in(self, at: Shard) -> Num:
        """q, k, v, and decay and step size where there are any, on one rank."""
        width = 2 * self.key_heads * self.qk_dim + self.heads * self.v_dim
        return at.tokens * (width + (self._decays + self.heads if self.gated else 0)) / at.tp

    def elements_out(self, at: Shard) -> Num:
        """The mixed values."""
        return at.tokens * self.heads * self.v_dim / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Backward makes twice the forward's products and the states of the chunks again."""
        flops = at.tokens * self._flops_per_token() / at.tp
        moved = (self.elements_in(at) + self.elements_out(at)) * style.compute_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.SCAN, flops, 2.0 * moved, count=4.0),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.SCAN, 2.5 * flops, 4.0 * moved, count=6.0),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs, the states between chunks in fp32, and the triangular inverses of the delta rule."""
        keys = at.tokens * self.key_heads * self.qk_dim / at.tp
        values = self.elements_out(at)
        chunks = at.tokens / self.chunk * self.heads / at.tp
        held = [
            Tensor(self.inputs[0], keys),
            Tensor(self.inputs[1], keys),
            Tensor(self.inputs[2], values),
            Tensor(f"{self.name}.states", chunks * self.qk_dim * self.v_dim, DtypeRole.FP32),
        ]
        if self.gated:
            gates = at.tokens * float(self._decays + self.heads) / at.tp
            held.append(Tensor(f"{self.name}.gates", gates, DtypeRole.FP32))
        if self.delta:
            held.append(Tensor(f"{self.name}.inverses", chunks * self.chunk**2))
        return tuple(held)

    def model_flops(self, at: Shard) -> Num:
        """FLOPs of the chunked algorithm (no common convention counts them; stated in the docs)."""
        return at.sequences * at.seq_len * self._flops_per_token()
