"""Linear layers: column-parallel, row-parallel and replicated matrix multiplications."""

from typing import Literal

import numpy as np

from cost_models.operators.base import (
    Axis,
    Collective,
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
)
from cost_models.operators.narrow import kept_input
from cost_models.specs.base import Frozen
from cost_models.units import Num


class Part(Frozen):
    """One output of a fused linear; `max_shards` limits its division (key/value heads), 0 is no limit."""

    name: str
    features: int
    max_shards: int = 0


class Linear(Operator):
    """y = x W (+ b), with W of in_features x sum(parts).

    Tensor parallel as in Megatron-LM (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section 4.2.2):
    `column` divides the outputs (gathers its input under sequence parallelism, reduces its input gradient), `row`
    divides the inputs (reduces its output), `replicated` runs on the tokens of the rank with a full weight.
    """

    family: Literal["linear"] = "linear"
    in_features: int
    parts: tuple[Part, ...]
    split: Literal["column", "row", "replicated"] = "column"
    bias: bool = False
    unbiased: tuple[str, ...] = ()
    """Parts without a bias although the linear has one (the keys of BEiT and Swin V2)."""
    fp32: bool = False
    communicates: bool = True
    """False where an earlier operator already moved the input (a second column-parallel reader of one gather)."""
    per_sample: bool = False
    """True for a head on pooled features: one row per sample, not per token."""
    saves_input: bool = True
    on_context: bool = False
    """True where the rows are positions of the stack that cross-attention reads (its keys and values)."""

    @property
    def out_features(self) -> int:
        """Sum of the features of all parts."""
        return sum(part.features for part in self.parts)

    def _rows(self, at: Shard) -> Num:
        if self.per_sample:
            return at.sequences
        if self.on_context:
            return at.context_tokens
        return at.sp_tokens if self.split == "replicated" else at.tokens

    def _local_out(self, at: Shard) -> Num:
        if self.split != "column":
            return float(self.out_features)
        total: Num = 0.0
        for part in self.parts:
            total = total + part.features / _ways(at.tp, part.max_shards)
        return total

    def _local_in(self, at: Shard) -> Num:
        return self.in_features / at.tp if self.split == "row" else float(self.in_features)

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """One weight per part, and biases (divided with the outputs under column, whole otherwise)."""
        split = Split.NONE if self.split == "replicated" else Split.TP
        groups = [
            ParameterGroup(
                f"{self.name}.{p.name}", self.in_features * p.features, split, max_shards=p.max_shards
            )
            for p in self.parts
        ]
        if self.bias:
            bias_split = Split.TP if self.split == "column" else Split.NONE
            groups += [
                ParameterGroup(
                    f"{self.name}.{p.name}.bias",
                    p.features,
                    bias_split,
                    max_shards=p.max_shards,
                    matrix=False,
                )
                for p in self.parts
                if p.name not in self.unbiased
            ]
        return tuple(groups)

    def elements_in(self, at: Shard) -> Num:
        """Rows x local input features."""
        return self._rows(at) * self._local_in(at)

    def elements_out(self, at: Shard) -> Num:
        """Rows x local output features."""
        return self._rows(at) * self._local_out(at)

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """2 m n k FLOPs each for output, input gradient and weight gradient."""
        m, n, k = self._rows(at), self._local_out(at), self._local_in(at)
        flops = 2.0 * m * n * k
        moved = (m * k + k * n + m * n) * (4.0 if self.fp32 else style.compute_bytes)
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, m, n, k, fp32=self.fp32),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, flops, moved, m, k, n, fp32=self.fp32),
            Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, flops, moved, k, n, m, fp32=self.fp32),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input, sequence-sharded where the engine gathers it again for the weight gradient."""
        if not self.saves_input:
            return ()
        elements = self.elements_in(at)
        if self.split == "column" and style.sp_saves_shard and not self.per_sample:
            elements = elements / at.sp_ways
        return (kept_input(self.inputs[0], elements, style, wide=self.fp32),)

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Sequence parallel: all-gather and reduce-scatter; without it: all-reduce.

        Narrow operands are quantised before they are gathered, sums are never narrow (Transformer Engine,
        pytorch/module/linear.py; torchao, float8_tensor_parallel.py).
        """
        if self.split == "replicated" or not self.communicates or self.per_sample:
            return ()
        sp = np.asarray(at.sp) > 0
        width = self.in_features if self.split == "column" else self.out_features
        elements = self._rows(at) * width
        payload = elements * style.compute_bytes
        with_sp, without = np.where(sp, payload, 0.0), np.where(sp, 0.0, payload)
        narrow = 0.0 if self.fp32 else style.gathered_bytes
        gathered = np.where(sp, elements * (narrow or style.compute_bytes), 0.0)
        gather, scatter = Collective.ALL_GATHER, Collective.REDUCE_SCATTER
        if self.split == "column":
            found = (
                Message(Phase.FORWARD, gather, Axis.TP, gathered, overlap_class="tp_gemm"),
                Message(Phase.INPUT_GRADIENT, scatter, Axis.TP, with_sp, overlap_class="tp_wgrad"),
                Message(Phase.WEIGHT_GRADIENT, gather, Axis.TP, gathered, overlap_class="tp_wgrad_gather"),
                Message(
                    Phase.INPUT_GRADIENT, Collective.ALL_REDUCE, Axis.TP, without, overlap_class="tp_wgrad"
                ),
            )
            return found
        return (
            Message(Phase.FORWARD, scatter, Axis.TP, with_sp, overlap_class="tp_gemm"),
            Message(Phase.INPUT_GRADIENT, gather, Axis.TP, gathered, overlap_class="tp_gemm"),
            Message(Phase.FORWARD, Collective.ALL_REDUCE, Axis.TP, without),
        )

    def transient(self, at: Shard, style: Style) -> Transient:
        """Output forward; both gradients and, under sequence parallelism, the gathered input backward."""
        inside, outside = self.elements_in(at), self.elements_out(at)
        gathered = np.where((np.asarray(at.sp) > 0) & (self.split == "column"), inside, 0.0)
        return Transient(
            (outside + gathered) * style.compute_bytes, (inside + outside + gathered) * style.compute_bytes
        )

    def model_flops(self, at: Shard) -> Num:
        """2 x rows of the whole model x weights."""
        positions = at.context_len if self.on_context else at.seq_len
        rows = at.sequences if self.per_sample else at.sequences * positions
        return 2.0 * rows * self.in_features * self.out_features


def _ways(tp: Num, max_shards: int) -> Num:
    """Ways in which a part is really divided: at most `max_shards`, the rest holds copies."""
    return np.minimum(tp, max_shards) if max_shards else tp
