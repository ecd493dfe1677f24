"""The language-model head over the vocabulary and the cross-entropy loss."""

from typing import Literal

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
    padded_vocabulary,
)
from cost_models.units import Num


class LmHead(Operator):
    """Logits = x W^T over the padded vocabulary, divided by columns over tensor-parallel ranks.

    `tie` names the table it shares with the embedding: the elements count once, but are stored on both stages.
    """

    family: Literal["lm_head"] = "lm_head"
    vocab_size: int
    width: int
    tie: str = ""
    bias: bool = False
    second_bias: bool = False
    """A further bias beside the matrix's own (untied heads of BERT in transformers)."""
    predicted: float = 1.0
    """Share of the positions whose logits are made: programs of masked language models gather the masked ones first."""

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """The output matrix and its biases."""
        rows = self.vocab_size
        found = [
            ParameterGroup(
                f"{self.name}.weight", rows * self.width, Split.VOCABULARY, rows=rows, tie=self.tie
            )
        ]
        for name, present in (("bias", self.bias), ("second_bias", self.second_bias)):
            if present:
                group = ParameterGroup(f"{self.name}.{name}", rows, Split.VOCABULARY, rows=rows, matrix=False)
                found.append(group)
        return tuple(found)

    def _columns(self, at: Shard, style: Style) -> Num:
        return padded_vocabulary(self.vocab_size, at.tp, style) / at.tp

    def elements_in(self, at: Shard) -> Num:
        """Tokens x hidden, whole over the tensor-parallel group."""
        return self.predicted * at.tokens * self.width

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """2 m n k FLOPs for each of output, input gradient and weight gradient."""
        m, n, k = self.predicted * at.tokens, self._columns(at, style), float(self.width)
        flops, moved = 2.0 * m * n * k, (m * k + k * n + m * n) * style.compute_bytes
        return (
            Kernel(Phase.FORWARD, KernelKind.GEMM, flops, moved, m, n, k),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.GEMM, flops, moved, m, k, n),
            Kernel(Phase.WEIGHT_GRADIENT, KernelKind.GEMM, flops, moved, k, n, m),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Its input, sequence-sharded where the engine gathers again.

        Deferred weight gradients keep whole inputs and the gradients of the logits of their micro-batches, and the
        empty gradient that autograd is handed for the fused one (megatron/core/tensor_parallel/layers.py,
        embedding_activation_buffer, grad_output_buffer, grad_weight).
        """
        elements = self.elements_in(at)
        held = (Tensor(self.inputs[0], elements / at.sp_ways if style.sp_saves_shard else elements),)
        if not style.deferred_head_batches:
            return held
        columns = self._columns(at, style)
        logits = self.predicted * at.tokens * columns
        waiting = style.deferred_head_batches * (elements + logits) + columns * self.width
        return (*held, Tensor(f"{self.name}.deferred", waiting))

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """As a column-parallel linear."""
        payload = self.elements_in(at) * style.compute_bytes
        sp = np.asarray(at.sp) > 0
        with_sp, without = np.where(sp, payload, 0.0), np.where(sp, 0.0, payload)
        return (
            Message(Phase.FORWARD, Collective.ALL_GATHER, Axis.TP, with_sp),
            Message(Phase.INPUT_GRADIENT, Collective.REDUCE_SCATTER, Axis.TP, with_sp),
            Message(Phase.INPUT_GRADIENT, Collective.ALL_REDUCE, Axis.TP, without),
        )

    def transient(self, at: Shard, style: Style) -> Transient:
        """Logits forward (a chunk of them where the loss is chunked); their gradient and the input's backward.

        Megatron-LM's head holds two tensors more: under sequence parallelism its gathered input, and backward a weight
        gradient in the compute dtype, empty where the fused product adds to the main gradient
        (megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication).
        """
        columns = self._columns(at, style)
        logits = self.predicted * at.tokens * columns / style.cross_entropy_chunks * style.compute_bytes
        inside = self.elements_in(at) * style.compute_bytes
        if not style.head_gradient_beside:
            return Transient(logits, logits + inside)
        gathered = np.where(np.asarray(at.sp) > 0, inside, 0.0)
        weight = columns * self.width * style.compute_bytes
        return Transient(logits + gathered, logits + inside + gathered + weight)

    def model_flops(self, at: Shard) -> Num:
        """2 x tokens x hidden x vocabulary (unpadded)."""
        return 2.0 * self.predicted * at.sequences * at.seq_len * self.vocab_size * self.width


class CrossEntropy(Operator):
    """Vocabulary-parallel cross entropy over logits in fp32 (Megatron-LM's vocab_parallel_cross_entropy).

    Unfused it keeps the fp32 softmax (4 bytes per token and local vocabulary entry) and holds an fp32 copy while it
    runs; fused it works in place on the logits; chunked, only one chunk of tokens is ever alive.
    """

    family: Literal["cross_entropy"] = "cross_entropy"
    vocab_size: int
    soft_cap: bool = False
    predicted: float = 1.0
    """Share of the positions that have a label, where only their logits are made."""

    def _entries(self, at: Shard, style: Style) -> Num:
        return self.predicted * at.tokens * padded_vocabulary(self.vocab_size, at.tp, style) / at.tp

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """About three passes over the logits each way, one when fused."""
        entries = self._entries(at, style)
        one_pass = style.fused_cross_entropy or style.compiled_loss
        passes = 1.0 if one_pass else 3.0
        each = (2.0 * style.compute_bytes if one_pass else 8.0) * passes
        found = [
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, entries * each, count=passes, fp32=True),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, entries * each, count=passes, fp32=True),
        ]
        if style.logit_metrics:  # logits are cast, their log-softmax is made out of place
            cast = style.compute_bytes + 4.0 if style.upcasts else 0.0
            moved = entries * style.logit_metrics * (cast + 8.0)
            count = 2.0 * style.logit_metrics
            found.append(Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, moved, count=count, fp32=True))
        return tuple(found)

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The softmax: fp32, or the logits' own storage when fused; none of it when chunked."""
        if style.cross_entropy_chunks > 1:
            return (Tensor(f"{self.name}.loss", at.tokens, DtypeRole.FP32),)
        entries = self._entries(at, style)
        frozen = (
            [Tensor(f"{self.name}.teacher", entries, DtypeRole.FP32)] if style.reference_logits > 1 else []
        )
        if _in_place(style):
            return (Tensor("logits", entries), *frozen)
        wide = DtypeRole.FP32 if style.logits_fp32 else DtypeRole.COMPUTE
        held = [Tensor(f"{self.name}.softmax", entries, wide), *frozen]
        if self.soft_cap:
            held.append(Tensor(f"{self.name}.capped", entries, wide))
        return tuple(held)

    def transient(self, at: Shard, style: Style) -> Transient:
        """Unfused: the compute-dtype logits beside the fp32 copy forward; their compute-dtype gradient backward.

        Megatron-LM's native fusion makes the exponentials from an fp32 copy that lives as long
        (megatron/core/fusions/fused_cross_entropy.py); its CI runs measure that copy: 0.38 GiB for 4096 x 25,216.
        """
        own = self._own_transient(at, style)
        if not style.reference_logits:
            return own
        # A frozen model's logits, their fp32 copy and its log-softmax, beside what the trained one keeps.
        wide = 0.0 if _in_place(style) else 8.0
        made = self._entries(at, style) / style.cross_entropy_chunks * (style.compute_bytes + wide)
        return Transient(np.maximum(own.forward, made), own.backward)

    def _own_transient(self, at: Shard, style: Style) -> Transient:
        entries = self._entries(at, style) / style.cross_entropy_chunks
        if _in_place(style):
            return Transient(0.0, 0.0)
        if style.cross_entropy_chunks > 1:
            return Transient(entries * 8.0, entries * (4.0 + style.compute_bytes))
        if style.eager_loss:
            return _eager(entries, at, style)
        copies = 4.0 if style.fused_cross_entropy and style.cross_entropy_copy else 0.0
        each = style.compute_bytes
        return Transient(entries * (each + copies), entries * each)

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Three small all-reduces over tokens: maximum, target logit, sum of exponentials."""
        payload = at.tokens * 4.0
        return (Message(Phase.FORWARD, Collective.ALL_REDUCE, Axis.TP, payload, 3.0),)


def _eager(entries: Num, at: Shard, style: Style) -> Transient:
    """Beside the kept log-softmax: logits and their fp32 copy, shifted once more in older libraries; backward its
    gradient and the logits', and where the loss is parallel one more (torch/distributed/tensor/parallel/loss.py)."""
    each = 4.0 if style.logits_fp32 else style.compute_bytes
    copied = each if style.logits_fp32 else 0.0
    shifted = each if style.shifted_logits else 0.0
    gradients = np.where(np.asarray(at.tp) > 1, 3.0, 2.0)
    return Transient(entries * (style.compute_bytes + copied + shifted), entries * each * gradients)


def _in_place(style: Style) -> bool:
    """Whether the softmax needs no storage of its own.

    Megatron-LM's unfused loss works in place on fp32 logits, which a narrower run copies first
    (megatron/core/tensor_parallel/cross_entropy.py, calculate_logits_max).
    """
    overwrites = style.cross_entropy_overwrites and not style.upcasts
    return overwrites or (style.fused_cross_entropy and style.cross_entropy_in_place)


class ClassLoss(Operator):
    """Cross entropy over a few classes, one row per sample; costs a launch."""

    family: Literal["class_loss"] = "class_loss"
    classes: int

    def elements_in(self, at: Shard) -> Num:
        """Samples x classes."""
        return at.sequences * self.classes

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Two small passes."""
        moved = self.elements_in(at) * 8.0
        return (
            Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, moved),
            Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, moved),
        )

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """The log-softmax."""
        return (Tensor(f"{self.name}.log_softmax", self.elements_in(at), DtypeRole.FP32),)
