"""Mixture of experts: router, dispatch of tokens to expert ranks, grouped linears, combine."""

from typing import Final, Literal

import numpy as np

from cost_models.operators.base import (
    Axis,
    Collective,
    DtypeRole,
    Kernel,
    KernelKind,
    Message,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    Transient,
    memory_kernels,
)
from cost_models.operators.narrow import kept_input
from cost_models.units import Num

FP32_BYTES: Final = 4.0


def expert_rows(at: Shard, style: Style, top_k: int) -> Num:
    """Routed token copies that one expert rank computes for one micro-batch (the hottest rank's, by `load`).

    Every rank sends its own tokens' top_k copies and, balanced, receives as many; an expert-tensor-parallel group
    works on the copies of all its members. With a capacity factor experts are padded (or cut) to it, so the load
    no longer matters.
    """
    copies = at.sp_tokens * top_k * at.etp
    return copies * (style.expert_capacity_factor or at.expert_load)


class Router(Operator):
    """Scores every token against every expert and keeps the top_k; a full copy on every rank."""

    family: Literal["router"] = "router"
    hidden: int
    experts: int
    top_k: int
    bias: bool = False
    shared_gate: bool = False
    """A sigmoid gate of hidden x 1 on the shared expert (Qwen2-MoE)."""
    fp32_input: bool = False
    """The library scores an fp32 copy of the tokens (DeepSeek-V3)."""
    groups: int = 0
    """Above 0: experts stand in so many groups, of which `kept_groups` are chosen by their two best (DeepSeek-V3)."""
    kept_groups: int = 0

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """The gate matrix, its bias and the shared expert's gate."""
        found = [ParameterGroup(f"{self.name}.weight", self.hidden * self.experts)]
        if self.bias:
            found.append(ParameterGroup(f"{self.name}.bias", self.experts, matrix=False))
        if self.shared_gate:
            found.append(ParameterGroup(f"{self.name}.shared_gate", self.hidden))
        return tuple(found)

    def elements_in(self, at: Shard) -> Num:
        """Tokens of the rank x hidden."""
        return at.sp_tokens * self.hidden

    def elements_out(self, at: Shard) -> Num:
        """Scores of every expert."""
        return at.sp_tokens * self.experts

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """The gate's GEMM and the top-k pass. Scores in fp32 are the product's accumulators: its operands stay in the
        compute dtype (megatron/core/transformer/moe/moe_utils.py, router_gating_linear)."""
        m, n, k = at.sp_tokens, float(self.experts), float(self.hidden)
        score_bytes = 4.0 if style.router_fp32 else style.compute_bytes
        flops, moved = 2.0 * m * n * k, (m * k + n * k) * style.compute_bytes + m * n * score_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, m, n, k),
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, 6.0 * m * n * 4.0, count=4.0),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, flops, moved, m, k, n),
            Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, flops, moved, k, n, m),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input (in fp32 where it upcasts), the scores, and the top-k probabilities and indices."""
        tokens = at.sp_tokens
        copied = style.library and self.fp32_input and style.upcasts
        wide, dtype = tokens * self.hidden, DtypeRole.FP32
        held = [
            Tensor(f"{self.name}.input_fp32", wide, dtype) if copied else Tensor(self.inputs[0], wide),
            Tensor(f"{self.name}.scores", tokens * self.experts, dtype),
            Tensor(f"{self.name}.top_k", tokens * self.top_k, dtype),
            Tensor(f"{self.name}.indices", tokens * self.top_k, DtypeRole.INT64),
        ]
        return (*held, *self._library_tensors(tokens, style)) if style.library else tuple(held)

    def _library_tensors(self, tokens: Num, style: Style) -> tuple[Tensor, ...]:
        """Sums that normalise the weights; two best of each group, groups and mask; ends of the experts' rows."""
        held = [Tensor(f"{self.name}.sums", tokens, DtypeRole.FP32)]
        if self.groups:
            best = tokens * (2 * self.groups + self.kept_groups)
            held.append(Tensor(f"{self.name}.groups", best, DtypeRole.INT64))
            held.append(Tensor(f"{self.name}.mask", tokens * self.experts, DtypeRole.BYTE))
        if style.grouped_experts:
            held.append(Tensor(f"{self.name}.ends", float(self.experts), DtypeRole.FP32))
        return tuple(held)

    def loss_bytes(self, at: Shard, style: Style) -> Num:
        """The load-balancing loss of the transformers library: one int64 one-hot of top_k x experts a token."""
        return at.tokens * float(self.top_k * self.experts) * 8.0 if style.aux_loss_one_hot else 0.0

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x hidden x experts (and the shared expert's gate)."""
        return 2.0 * at.sequences * at.seq_len * self.hidden * (self.experts + int(self.shared_gate))


class _Exchange(Operator):
    """Shared by dispatch and combine: permute the routed copies and move them between expert ranks."""

    hidden: int
    top_k: int

    def elements_in(self, at: Shard) -> Num:
        """Tokens of the rank x hidden."""
        return at.sp_tokens * self.hidden

    def _copies(self, at: Shard, style: Style) -> Num:
        return expert_rows(at, style, self.top_k) * self.hidden

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Passes over the copies, alike in dispatch and combine, forward and backward.

        Tokens become copies in expert order (tokens read, copies written, or the reverse); where copies travel, they
        are sorted by local expert once more. A deduplicating exchange moves tokens and copies them on arrival
        (megatron/core/transformer/moe/token_dispatcher.py).
        """
        copies, tokens = self._copies(at, style), self.elements_in(at)
        travelling = np.where(np.asarray(at.ep) > 1, 1.0, 0.0)
        sorting = 2.0 * tokens if style.deduplicated_dispatch else 2.0 * copies
        moved = (copies + tokens + travelling * sorting) * style.compute_bytes
        return memory_kernels(moved, moved)

    def _exchange(
        self, at: Shard, style: Style, forward_bytes: float, backward_bytes: float
    ) -> tuple[Message, ...]:
        sent: Num = at.sp_tokens * self.top_k * self.hidden * (style.expert_capacity_factor or at.expert_load)
        fan_out = self.top_k if style.deduplicated_dispatch else 0
        rows = at.sp_tokens * self.top_k * self.hidden * at.etp
        etp = np.where(np.asarray(at.etp) > 1, rows * style.compute_bytes, 0.0)
        forward, backward = Phase.FORWARD, Phase.INPUT_GRADIENT
        to_all, cls = Collective.ALL_TO_ALL, "ep_dispatch"
        inward = isinstance(self, Dispatch)
        gather, scatter = Collective.ALL_GATHER, Collective.REDUCE_SCATTER
        return (
            Message(forward, to_all, Axis.EP, sent * forward_bytes, 1.0, cls, fan_out),
            Message(backward, to_all, Axis.EP, sent * backward_bytes, 1.0, cls, fan_out),
            Message(forward, gather if inward else scatter, Axis.ETP, etp),
            Message(backward, scatter if inward else gather, Axis.ETP, etp),
        )

    def transient(self, at: Shard, style: Style) -> Transient:
        """Send and receive buffers of the exchange."""
        buffers = 2.0 * self._copies(at, style) * style.compute_bytes
        return Transient(buffers, buffers)


class Dispatch(_Exchange):
    """Permute tokens by expert and send each copy to its expert's rank (all-to-all over ep)."""

    family: Literal["dispatch"] = "dispatch"

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Forward in the dispatch dtype, backward (the combine of gradients) in the compute dtype."""
        return self._exchange(at, style, style.dispatch_bytes, style.compute_bytes)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The row map of the permutation (the library's loop keeps token and choice, its grouped product a third);
        the permuted tokens are saved by the experts' first linear."""
        maps = (3.0 if style.grouped_experts else 2.0) if style.library else 1.0
        return (Tensor(f"{self.name}.row_map", maps * at.sp_tokens * self.top_k, DtypeRole.INT64),)


class Combine(_Exchange):
    """Bring the experts' outputs home and add them up, weighted by the router."""

    family: Literal["combine"] = "combine"

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Forward in the compute dtype; backward (dispatch of gradients) in the compute dtype."""
        return self._exchange(at, style, style.compute_bytes, style.compute_bytes)

    def transient(self, at: Shard, style: Style) -> Transient:
        """Buffers of the exchange; copies weighted in fp32 outside it stand in four forms: as they came, in fp32,
        weighted, and narrow again, and their gradients too."""
        exchange = super().transient(at, style)
        if style.weighted_copies != FP32_BYTES:
            return exchange
        formed = self._copies(at, style) * 2.0 * (style.compute_bytes + FP32_BYTES)
        return Transient(np.maximum(exchange.forward, formed), np.maximum(exchange.backward, formed))

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The library weights the copies before it adds them up, and keeps both factors (its loop the copies twice);
        a fused combine keeps nothing of its own, and torchtitan's the copies that it multiplies by their scores in fp32
        (models/moe.py), which a compiler makes again from the compute dtype."""
        copies = self._copies(at, style)
        if not style.library:
            wide = DtypeRole.FP32 if style.weighted_copies == FP32_BYTES else DtypeRole.COMPUTE
            kept = Tensor(f"{self.name}.outputs", copies, wide)
            return (kept,) if style.weighted_copies else ()
        return (
            Tensor(f"{self.name}.outputs", copies * (1.0 if style.grouped_experts else 2.0)),
            Tensor(f"{self.name}.weights", copies / self.hidden, DtypeRole.FP32),
        )


class GroupedLinear(Operator):
    """The same linear for each of `experts`, as one grouped GEMM over the rank's experts.

    Experts are divided over ep; inside an expert `column` divides the outputs over etp, `row` the inputs.
    """

    family: Literal["grouped_linear"] = "grouped_linear"
    experts: int
    top_k: int
    in_features: int
    out_features: int
    split: Literal["column", "row"] = "column"
    bias: bool = False
    idle_experts: int = 0
    """Further experts whose weights are stored and never run (those of LongCat-Flash's identity experts)."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Experts x in x out."""
        each = self.in_features * self.out_features
        found = [ParameterGroup(f"{self.name}.weight", self.experts * each, Split.EXPERT)]
        if self.idle_experts:
            idle = self.idle_experts * each
            found.append(ParameterGroup(f"{self.name}.idle", idle, Split.EXPERT, matrix=False))
        if self.bias:
            found.append(
                ParameterGroup(
                    f"{self.name}.bias", self.experts * self.out_features, Split.EXPERT, matrix=False
                )
            )
        return tuple(found)

    def _shape(self, at: Shard, style: Style) -> tuple[Num, Num, Num]:
        rows = expert_rows(at, style, self.top_k)
        n = self.out_features / at.etp if self.split == "column" else float(self.out_features)
        k = self.in_features / at.etp if self.split == "row" else float(self.in_features)
        return rows, n, k

    def elements_in(self, at: Shard) -> Num:
        """Rows cannot be known without the style; transients are given by `transient`."""
        return 0.0

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """2 rows n k FLOPs; the weights of all local experts are read, however few tokens each has."""
        rows, n, k = self._shape(at, style)
        local = self.experts / at.ep
        m = rows / local
        flops = 2.0 * rows * n * k
        moved = (rows * k + rows * n + local * n * k) * style.compute_bytes
        grouped = KernelKind.GROUPED_GEMM
        return (
            Kernel(Phase.FORWARD, grouped, flops, moved, m, n, k, local),
            Kernel(Phase.INPUT_GRADIENT, grouped, flops, moved, m, k, n, local),
            Kernel(Phase.WEIGHT_GRADIENT, grouped, flops, moved, k, n, m, local),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The routed rows it reads."""
        rows, _, k = self._shape(at, style)
        return (kept_input(self.inputs[0], rows * k, style),)

    def transient(self, at: Shard, style: Style) -> Transient:
        """Output forward; gradients of input and output backward."""
        rows, n, k = self._shape(at, style)
        return Transient(rows * n * style.compute_bytes, rows * (n + k) * style.compute_bytes)

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x top_k x weights of one expert."""
        return 2.0 * at.sequences * at.seq_len * self.top_k * self.in_features * self.out_features
