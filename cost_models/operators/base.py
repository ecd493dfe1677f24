"""What an operator tells: parameters, kernels, saved tensors, messages. Counts only, never seconds.

Every method is a function of a `Shard` (where the operator runs, as scalars or as arrays over candidate layouts)
and of a `Style` (how the engine runs it: fused or not), so that one strategy and ten thousand go the same way.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Literal

import numpy as np

from cost_models.specs.base import Frozen
from cost_models.units import Num


class Phase(IntEnum):
    """The three pieces of a training step of an operator."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


class Split(StrEnum):
    """How the elements of a parameter are divided over ranks."""

    NONE = "none"  # a full copy on every tensor-parallel rank
    TP = "tp"  # divided over the tensor-parallel ranks, at most `max_shards` ways
    VOCABULARY = "vocabulary"  # rows padded by the engine, then divided over the tensor-parallel ranks
    EXPERT = "expert"  # divided over ep ranks by expert and over etp ranks inside one


class DtypeRole(StrEnum):
    """Which of the job's dtypes a tensor has; the engine turns a role into bytes."""

    COMPUTE = "compute"  # activations and weights in computation (bf16, fp16, fp32)
    FP32 = "fp32"
    INT64 = "int64"
    BYTE = "byte"  # fp8, flags
    MASK = "mask"  # dropout masks, as wide as the device's kernels make them
    NARROW = "narrow"  # operands of fp8 and fp4 products that are kept as they were multiplied


class KernelKind(StrEnum):
    """Which efficiency curve prices a kernel."""

    GEMM = "gemm"
    GROUPED_GEMM = "grouped_gemm"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    MEMORY = "memory"  # bound by bytes: norms, activations, copies, permutations, losses
    SCAN = "scan"  # state-space scans: matrix work in small chunks


class Collective(StrEnum):
    """Collective communication operations."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND_RECEIVE = "send_receive"


class Axis(StrEnum):
    """Mesh axes a message can travel on."""

    TP = "tp"
    CP = "cp"
    CP_INNER = "cp_inner"  # neighbouring context ranks that exchange heads, under hierarchical kinds
    CP_OUTER = "cp_outer"  # the ring of these groups
    EP = "ep"
    ETP = "etp"


@dataclass(frozen=True, slots=True)
class Shard:
    """Where an operator runs: one micro-batch on one rank; every field a scalar or an array of one shape.
    `sequences` is the micro-batch size per data-parallel rank (samples for vision), `seq_len` the positions of this
    operator's stack, `context_len` the positions of the stack that cross-attention reads, `load` the routed tokens of
    the hottest expert rank divided by the mean.
    """

    sequences: Num
    seq_len: Num
    context_len: Num
    image_size: int = 0
    tp: Num = 1
    cp: Num = 1
    ep: Num = 1
    etp: Num = 1
    sp: Num = 0  # 1 where sequence parallelism is on
    load: Num = 1.0

    @property
    def tokens(self) -> Num:
        """Tokens of one micro-batch on one context-parallel rank, whole over its tensor-parallel group."""
        return self.sequences * self.seq_len / self.cp

    @property
    def context_tokens(self) -> Num:
        """Tokens of the other stack on one context-parallel rank."""
        return self.sequences * self.context_len / self.cp

    @property
    def expert_load(self) -> Num:
        """Routed copies on the fullest expert rank over the mean: at most what all ranks send, so 1 without ep."""
        return np.minimum(self.load, self.ep)

    @property
    def sp_tokens(self) -> Num:
        """Tokens of one rank in the regions outside tensor parallelism (divided by tp under sequence parallelism)."""
        return self.tokens / self.sp_ways

    @property
    def sp_ways(self) -> Num:
        """Ways in which the tokens are divided outside tensor-parallel regions."""
        return np.where(np.asarray(self.sp) > 0, self.tp, 1.0)


@dataclass(frozen=True, slots=True)
class Style:
    """How an engine runs operators; set by the engine from its options."""

    flash_attention: bool = True  # False: the S x S scores and probabilities are materialised and saved
    softmax_fp32_copy: bool = False  # eager softmax that keeps both fp32 and compute-dtype probabilities
    fused_norm: bool = True  # False: RMSNorm keeps an fp32 copy of its input and a normalised tensor
    fused_activation: bool = True  # False: the activation function keeps its intermediate tensors
    fused_rope: bool = True
    fused_cross_entropy: bool = False  # True: no fp32 logits are kept beside the softmax
    cross_entropy_in_place: bool = True  # fused: the softmax overwrites the logits; False: it is an fp32 copy
    cross_entropy_overwrites: bool = False  # unfused: logits that are fp32 already become the softmax
    cross_entropy_copy: bool = (
        False  # fused and not in place: the softmax is made beside an fp32 copy of the logits
    )
    head_gradient_beside: bool = False  # the head's weight gradient is a tensor beside the main gradient
    deferred_head_batches: int = 0  # micro-batches whose weight gradient of the head is put off
    weighted_experts: bool = (
        False  # an unfused activation of experts is weighted by the router, which keeps it
    )
    fused_scan: bool = False  # Mamba 2's convolution, scan and gate in one function that runs them again
    split_keeps_projection: bool = False  # values are a view of the fused q/k/v projection and keep it alive
    cross_entropy_chunks: int = 1  # the head and loss are computed in this many chunks of tokens
    logits_fp32: bool = True  # the loss upcasts the logits
    reference_logits: int = (
        0  # a frozen model's logits in the loss: 1 while it is made, 2 kept until backward
    )
    logit_metrics: int = 0  # cross entropies that are made again, in fp32, of every micro-batch's logits
    shifted_logits: bool = False  # an eager loss shifts the logits: one more fp32 copy of them
    channels_first: bool = False  # images in 16 bits lie channels first, which tensor cores do not take
    compiled_loss: bool = (
        False  # upcast, log-softmax and its gradient are one pass each over the logits as they are
    )
    eager_loss: bool = False  # log-softmax and its gradients out of place, as torch.nn.functional's
    sp_saves_shard: bool = True  # column-parallel linears save the sequence-sharded input and gather again
    router_fp32: bool = True
    compute_bytes: float = 2.0  # bytes of the compute dtype
    narrow_bytes: float = 0.0  # of an input of a linear that is kept in fp8 or fp4; 0: in the compute dtype
    gathered_bytes: float = (
        0.0  # of an element that sequence parallelism gathers for a linear, as narrow_bytes
    )
    dispatch_bytes: float = 2.0  # bytes of an element sent to experts in the forward pass
    expert_capacity_factor: float = 0.0  # 0: dropless; else tokens per expert are padded to the capacity
    deduplicated_dispatch: bool = False  # one copy of a token per destination node instead of top_k copies
    cp_kind: str = "ring"  # ring | allgather | ulysses | hierarchical:N
    vocabulary_multiple: int = 1  # rows of the vocabulary are padded to a multiple of this times tp
    aux_loss_one_hot: bool = False  # the router loss builds one int64 one-hot tensor over all layers
    dropout: bool = True  # dropouts of the model are active (their masks are saved)
    library: bool = False  # the transformers library's own modules, operator by operator (docs/engines.md)
    grouped_experts: bool = False  # library: experts as one grouped product instead of a loop over them
    weighted_copies: float = (
        0.0  # bytes of an element of what experts read or give, kept where their scores multiply it
    )
    experts_run_again: bool = False  # activations of experts keep their inputs and compute the function again
    repeated_keys: bool = False  # fused attention reads keys and values repeated to all heads
    checkpoints_divided: bool = False  # inputs of recomputed layers are divided over tensor-parallel ranks
    checkpoints_on_host: bool = False  # they rest in the host's memory
    cpu_kernels: bool = False  # masks and LayerNorm statistics in the compute dtype, as the CPU keeps them
    math_attention: bool = False  # scores materialised by SDPA itself, in fp32 (where it has no fused kernel)

    @property
    def upcasts(self) -> bool:
        """Whether fp32 copies of tensors in the compute dtype are copies at all."""
        return self.compute_bytes < 4.0


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that are stored, sharded and reduced alike; `elements` counts the whole model's, once.

    `rows` is the vocabulary for Split.VOCABULARY (the engine pads it); `max_shards` the largest useful division
    (key/value heads under grouped-query attention: beyond it ranks hold copies). Expert groups reduce gradients over
    the expert data-parallel ranks, all others over dp x cp. `tie` names a group whose storage this one shares.
    """

    name: str
    elements: int
    split: Split = Split.NONE
    rows: int = 0
    max_shards: int = 0  # 0: no limit
    tie: str = ""
    fp32: bool = False  # stored in fp32 whatever the parameter dtype (routers in some engines)
    matrix: bool = True  # takes part in matrix multiplication (False for norms, biases, embedding tables)
    frozen: bool = False  # neither gradient nor optimizer states
    storage_bytes: float = 0.0  # bytes of a frozen element that is quantised; 0: in the compute dtype

    @property
    def is_expert(self) -> bool:
        """Whether gradients are reduced over the expert data-parallel group."""
        return self.split is Split.EXPERT


@dataclass(frozen=True, slots=True)
class Kernel:
    """Work of `count` equal launches on one rank for one micro-batch; `flops` and `bytes` are totals over them.

    m, n, k is the shape of each matrix kernel (grouped: m tokens per expert), of attention queries, keys, head size.
    """

    phase: Phase
    kind: KernelKind
    flops: Num
    bytes: Num
    m: Num = 0.0
    n: Num = 0.0
    k: Num = 0.0
    count: Num = 1.0
    fp32: bool = False  # runs in fp32 whatever the precision (router, loss)
    minimal: bool = (
        False  # a 3 x 3 convolution of stride 1, which minimal filtering can compute with fewer products
    )


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor that lives from forward to backward; equal `id` within a layer means one storage, counted once.
    `released` says when it can be freed: after the input gradient or after the weight gradient."""

    id: str
    elements: Num
    dtype: DtypeRole = DtypeRole.COMPUTE
    released: Phase = Phase.WEIGHT_GRADIENT


@dataclass(frozen=True, slots=True)
class Message:
    """One collective of one micro-batch. `bytes` is the group's payload: what all-reduce reduces, all-gather produces,
    one rank sends in all-to-all (its own part too)."""

    phase: Phase
    collective: Collective
    axis: Axis
    bytes: Num
    count: Num = 1.0
    overlap_class: str = "none"  # "none" | "tp_gemm" | "cp_ring" | "ep_dispatch"
    fan_out: int = 0  # top-k copies of a token, for deduplicated dispatch


@dataclass(frozen=True, slots=True)
class Transient:
    """Bytes that live only while the operator runs, above what was live before and what it saves."""

    forward: Num = 0.0
    backward: Num = 0.0


def memory_kernels(forward_bytes: Num, backward_bytes: Num, fp32: bool = False) -> tuple[Kernel, Kernel]:
    """The two kernels of an operator bound by memory traffic: forward and input gradient."""
    return (
        Kernel(Phase.FORWARD, KernelKind.MEMORY, 0.0, forward_bytes, fp32=fp32),
        Kernel(Phase.INPUT_GRADIENT, KernelKind.MEMORY, 0.0, backward_bytes, fp32=fp32),
    )


def padded_vocabulary(vocab_size: int, tp: Num, style: Style) -> Num:
    """Rows of the vocabulary after the engine's padding to a multiple of (multiple x tp), over all ranks."""
    multiple = style.vocabulary_multiple * np.asarray(tp, dtype=float)
    padded: Num = np.ceil(vocab_size / multiple) * multiple
    return padded


class Operator(Frozen):
    """One operator of a layer kind; subclasses fix `family` and the dimensions, and implement the counts.

    `name` is unique within its layer kind and names the output tensor; `inputs` name the tensors it reads
    (outputs of earlier operators, or `x`, the layer's input).
    """

    name: str
    inputs: tuple[str, ...] = ("x",)
    shares: str = ""  # weight-sharing group: operators of one group and name store their weights once (Zamba)
    frozen: Literal["", "weights", "whole"] = (
        ""  # weights not trained; whole: nothing below is trained either
    )
    storage_bytes: float = 0.0  # of an element of a quantised frozen matrix

    def stored(self) -> tuple[ParameterGroup, ...]:
        """Parameter groups, tied to those of the same operator in other layers where the weights are shared."""
        groups, of = self.parameters(), self.shares
        return (
            tuple(replace(group, tie=group.tie or f"{of}/{group.name}") for group in groups) if of else groups
        )

    def parameters(self) -> tuple[ParameterGroup, ...]:
        """Parameter groups of the whole operator (unsharded)."""
        return ()

    def kernels(self, at: Shard, style: Style) -> tuple[Kernel, ...]:
        """Kernels of the three phases on one rank for one micro-batch."""
        raise NotImplementedError

    def saved(self, at: Shard, style: Style) -> tuple[Tensor, ...]:
        """Tensors kept from forward to backward on one rank for one micro-batch."""
        return ()

    def messages(self, at: Shard, style: Style) -> tuple[Message, ...]:
        """Collectives that the operator needs under tensor, context or expert parallelism."""
        return ()

    def elements_in(self, at: Shard) -> Num:
        """Elements of the operator's inputs on one rank."""
        return 0.0

    def elements_out(self, at: Shard) -> Num:
        """Elements of the operator's outputs on one rank."""
        return self.elements_in(at)

    def transient(self, at: Shard, style: Style) -> Transient:
        """Bytes alive only while the operator runs: its output forward, both gradients backward."""
        inside, outside = self.elements_in(at), self.elements_out(at)
        return Transient(outside * style.compute_bytes, (inside + outside) * style.compute_bytes)

    def loss_bytes(self, at: Shard, style: Style) -> Num:
        """Bytes that the loss builds from this operator's outputs, of all layers at once."""
        return 0.0

    def model_flops(self, at: Shard) -> Num:
        """Forward model FLOPs of one micro-batch over all ranks: matmuls (routers and heads count, tables do not) and
        causal or window-limited attention. Matmul parts obey backward = 2 x forward."""
        return 0.0
