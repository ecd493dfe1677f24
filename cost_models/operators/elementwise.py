"""Operators that touch every element once: activations, residual additions, rotary embedding, dropout."""

from typing import Final, Literal

from cost_models.operators.base import (
    DtypeRole,
    Kernel,
    Operator,
    ParameterGroup,
    Shard,
    Style,
    Tensor,
    Transient,
    memory_kernels,
)
from cost_models.operators.moe import expert_rows
from cost_models.units import Num

KEEP_THEIR_VALUE: Final = frozenset({"relu", "tanh", "sigmoid"})
"""Functions whose gradient is made from their value (torch, tools/autograd/derivatives.yaml), which the next product
keeps too."""

OF_TWO_KERNELS: Final = frozenset({"quick_gelu"})
"""Functions that torch has no kernel for: x times a sigmoid, which is kept."""


class Activation(Operator):
    """A point-wise function of `width` features inside a tensor-parallel region; `gated` multiplies two halves.

    Reads 2 x width when gated. Fused it keeps its input only; unfused it also keeps the function's value where that is
    multiplied by the other half. A plain function is one kernel of torch, which keeps its input, or its value where the
    gradient is a function of that; in the transformers library it keeps `unfused_copies` tensors of its width more
    (GPT-2's tanh GELU in plain operators 4).
    """

    family: Literal["activation"] = "activation"
    function: str = "silu"
    width: int
    gated: bool = False
    expert_top_k: int = 0
    """Above 0 the rows are routed copies of tokens on an expert rank."""
    unfused_copies: int = 1

    def _rows(self, at: Shard, style: Style) -> Num:
        if self.expert_top_k:
            return expert_rows(at, style, self.expert_top_k) / at.etp
        return at.tokens / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Reads its inputs and writes its output; backward reads both and writes the input gradients."""
        element = self._rows(at, style) * self.width * style.compute_bytes
        reads = 2.0 if self.gated else 1.0
        passes = 1.0 if style.fused_activation else 2.0
        return memory_kernels((reads + 1.0) * element * passes, (2.0 * reads + 1.0) * element * passes)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs (one storage if one tensor feeds it)."""
        elements = self._rows(at, style) * self.width
        whole = 2.0 * elements if self.gated and len(self.inputs) == 1 else elements
        held = [Tensor(name, whole) for name in self.inputs]
        if not style.fused_activation:
            if not self.gated and self.function in KEEP_THEIR_VALUE:
                return (Tensor(self.name, elements),)
            copies = self._unfused_copies(style)
            held += [Tensor(f"{self.name}.inner", copies * elements)] if copies else []
        elif style.weighted_experts and self.expert_top_k and not self.gated:
            # megatron/core/transformer/mlp.py: the function's value, then times the router's weights
            held.append(Tensor(f"{self.name}.unweighted", elements))
        return tuple(held)

    def _unfused_copies(self, style: Style) -> float:
        """Tensors of the function's width beside its inputs, under unfused activations."""
        if self.gated:
            return 0.0 if self.expert_top_k and style.experts_run_again else 1.0
        if style.library:
            return float(self.unfused_copies)
        return 1.0 if self.function in OF_TWO_KERNELS else 0.0

    def transient(self, at: Shard, style: Style) -> Transient:
        """Output forward, gradients of input and output backward."""
        element = self._rows(at, style) * self.width * style.compute_bytes
        return Transient(element, element * (3.0 if self.gated else 2.0))


class Residual(Operator):
    """x + f(x) over the residual stream, with the dropout mask of the branch where the model drops out."""

    family: Literal["residual"] = "residual"
    width: int
    dropout: bool = False

    def elements_in(self, at: Shard) -> Num:
        """Elements of the residual stream on one rank."""
        return at.sp_tokens * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Two reads and a write forward; the gradient passes through, with one masked copy under dropout."""
        moved = self.elements_in(at) * style.compute_bytes
        return memory_kernels(3.0 * moved, (2.0 if self.dropout else 1.0) * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The dropout mask."""
        if not (self.dropout and style.dropout):
            return ()
        return (Tensor(f"{self.name}.dropout_mask", self.elements_in(at), DtypeRole.MASK),)


class Rope(Operator):
    """Rotary position embedding on `width` features of queries and keys.

    Where values are a view of the fused projection, queries and keys before rotation stay alive with them
    (megatron/core/transformer/attention.py, get_query_key_value_tensors).
    """

    family: Literal["rope"] = "rope"
    width: int

    def elements_in(self, at: Shard) -> Num:
        """Rotated elements on one rank."""
        return at.tokens * self.width / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One fused pass, or about three with rotate-half copies."""
        moved = self.elements_in(at) * style.compute_bytes * (1.0 if style.fused_rope else 3.0)
        return memory_kernels(2.0 * moved, 2.0 * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Nothing of its own: rotation is linear. The projection's queries and keys, where values hold them."""
        if style.split_keeps_projection and self.inputs == ("qkv",):
            return (Tensor(f"{self.name}.unrotated", self.elements_in(at)),)
        return ()


class Scale(Operator):
    """A point-wise pass over `width` features of the residual stream that keeps its input (soft caps, gates)."""

    family: Literal["scale"] = "scale"
    width: int
    reads: int = 1
    weights: int = 0
    """Learned vectors of `width`: 1 for a layer scale, 2 with a bias (ConvNeXt V2's response norm)."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """The learned vectors, a full copy on every rank."""
        if not self.weights:
            return ()
        return (ParameterGroup(f"{self.name}.weight", self.weights * self.width, matrix=False),)

    def elements_in(self, at: Shard) -> Num:
        """Elements on one rank, inside a tensor-parallel region."""
        return at.tokens * self.width / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """One read per input and one write."""
        moved = self.elements_in(at) * style.compute_bytes
        return memory_kernels((self.reads + 1.0) * moved, (2.0 * self.reads + 1.0) * moved)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its inputs."""
        return tuple(Tensor(name, self.elements_in(at)) for name in self.inputs)
