"""Typed `engine.…` options; an engine's own options extend the shared ones."""

from typing import Annotated, Literal

from pydantic import Field

from cost_models.specs.base import Frozen

StateDtype = Literal["fp32", "bf16", "fp16", "fp8"]


class EngineOptions(Frozen):
    """Options that every engine takes."""

    generation: str = "auto"
    """Software generation whose constants price the step (profiles/calibration/generations.toml); auto is the engine's
    current one."""

    attention: Literal["flash", "flash2", "unfused"] = "flash"
    """flash: the fastest fused kernels of the device; flash2: FlashAttention 1 and 2 where those are slower; unfused:
    scores materialised."""
    fused_cross_entropy: bool = False
    cross_entropy_chunks: Annotated[int, Field(ge=1, le=65_536)] = 1
    grad_dtype: Literal["fp32", "bf16"] = "fp32"
    moment_dtype: StateDtype = "fp32"
    expandable_segments: bool = False
    initialise: Literal["sharded", "device", "host", "rank0"] = "sharded"
    """How the model is built: sharded, each rank its part (meta device, zero.Init); device, every rank the whole of its
    tensor-parallel part on its device before it is divided; host, the same in host memory; rank0, one rank a node."""
    nvlink_sharp: bool = True
    """All-reduces are done in NVLink switches where these can (NVLS). NCCL does so unless NCCL_NVLS_ENABLE=0."""
    load: Literal["sharded", "device", "host"] = "sharded"
    """How a checkpoint's weights come: sharded, in parts; device or host, every rank holds all that its tensor-parallel
    rank has beside its states."""
    dropout: bool = True


class MegatronOptions(EngineOptions):
    """Megatron-LM: overlaps, padding of the vocabulary, communication-overlapped GEMMs."""

    nvlink_sharp: bool = False
    """NeMo's and Megatron-Bridge's recipes set NCCL_NVLS_ENABLE=0 to save the memory of its buffers."""
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    mtp_in_stages: bool = False
    """Stages count trained prediction layers as one more block behind the model's own, so that they may stand before
    the loss's stage ("m" of --pipeline-model-parallel-layout, core 0.16 and later)."""
    broadcast_params: bool = False
    """The step's new parameters are sent round by one broadcast a rank, as the ZeRO-1 of InternEvo does."""
    tp_comm_overlap: bool = False
    overlap_p2p: bool = True
    """Sends run beside the next chunk where a rank has several (overlap_p2p_comm, --no-overlap-p2p-communication)."""
    ep_overlap: bool = False
    """Exchanges of experts run beside the pass of another micro-batch (--overlap-moe-expert-parallel-comm)."""
    deduplicated_dispatch: bool = False
    vocabulary_multiple: Annotated[int, Field(ge=1, le=65_536)] = 128
    router_fp32: bool = True
    cross_entropy_impl: Literal["native", "scripted", "te"] = "native"
    """Fused loss: native keeps an fp32 softmax and, compiled, makes it beside an fp32 copy of the logits; scripted is
    native without the copy (TorchScript, which older torch takes); te overwrites the logits
    (--cross-entropy-fusion-impl)."""
    flat_all_reduce: bool = False
    """The local data parallel of 2020: gradients are concatenated into one flat copy before the all-reduce."""
    scatter_gather_p2p: bool = False
    """Without sequence parallelism, send each tensor-parallel rank's share of a boundary and gather it on arrival
    (Narayanan et al. 2021, section 4.1)."""
    transformer_impl: Literal["transformer_engine", "local"] = "transformer_engine"
    """local: Megatron-Core's own modules, which have no workspaces of Transformer Engine and, unfused, one buffer of
    scores for all layers."""
    deterministic: bool = False
    """--deterministic-mode: large cuBLAS workspaces on every device."""
    gradient_accumulation_fusion: bool = True
    """Weight gradients are added to the main gradients by the product itself; Transformer Engine then keeps one empty
    gradient for every shape of linear (--no-gradient-accumulation-fusion)."""
    softmax_fusion: bool = True
    """False: materialised attention keeps an fp32 softmax (--no-masked-softmax-fusion)."""
    grouped_gemm: bool = True
    """Experts of a rank as one grouped product, with workspaces for its streams (--moe-grouped-gemm)."""
    weighted_experts: bool = True
    """Routing weights are applied to the experts' activations (core 0.13 and later), not to their outputs."""
    deferred_head_batches: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Micro-batches whose weight gradient of the head waits for the pipeline's end (--defer-embedding-wgrad-compute
    with --wgrad-deferral-limit)."""
    master_dtype: Literal["fp32", "remainder", "fp16", "bf16"] = "fp32"
    """Main weights of the optimizer: remainder keeps the 16 bits of fp32 that bf16 weights lack, as
    --use-precision-aware-optimizer does; fp16 and bf16 are --main-params-dtype."""
    second_moment_dtype: Literal["same", "fp32", "bf16", "fp16", "fp8"] = "same"
    """Second moment, where it differs from engine.moment_dtype (--exp-avg-sq-dtype)."""
    wide_dtype: Literal["auto", "fp32"] = "auto"
    """fp32: an fp8 run without --bf16 keeps fp32 weights and activations around its narrow products."""
    cuda_graphs: bool = False
    """Layers or iterations are replayed from CUDA graphs, so that the host launches nothing (--cuda-graph-impl)."""
    fp8_recipe: Literal["tensorwise", "delayed"] = "tensorwise"
    """Scales of fp8: tensorwise are of the tensor at hand; delayed ones of its history, which all ranks of a pipeline
    stage reduce in every pass of every micro-batch (--fp8-recipe)."""
    fp8_param_gather: bool = False
    """Weights of linears exist in the precision's narrow type alone (--fp8-param-gather): no 16-bit copy."""
    fp8_weight_copies: Annotated[int, Field(ge=0, le=2)] = 2
    """Narrow copies of every linear's weight: as it is and transposed; 1 where the device multiplies both ways from one
    (tensor-wise scaling on Blackwell), 0 without a cache of them (--no-fp8-weight-transpose-cache)."""
    megatron_fsdp: bool = False
    """--use-megatron-fsdp: ZeRO 0 to 3 are the data-parallel sharding strategies no_shard, optim, optim_grads and
    optim_grads_params."""
    fsdp_double_buffer: bool = False
    communication_unit_elements: Annotated[float, Field(ge=1.0, le=1e13)] = 1e9
    """Elements of gradients that wait for their reduction under Megatron-FSDP, and twice those gathered ahead
    (--suggested-communication-unit-size)."""


class TorchOptions(EngineOptions):
    """Engines on plain torch.distributed: compilation, bucket overlap, kernels left unfused when eager."""

    param_dtype: Literal["fp32", "bf16"] = "fp32"
    """bf16 is pure bf16 training: gradients and moments follow the parameters, and there is no master copy."""
    router_aux_loss: bool = False
    """The transformers library's load-balancing loss (output_router_logits), which concatenates all layers."""
    modules: Literal["fused", "reference", "transformers"] = "fused"
    """fused: torch's own kernels where it has them (rms_norm, grouped-query attention), as this project's executor and
    torchtitan run; reference: a plain program as published beside checkpoints, whose RMSNorms are written out and keep
    an fp32 copy, and whose keys and values are repeated to all heads; transformers: the library's own modules, operator
    by operator; they keep an fp32 copy of every RMSNorm's input and, with unfused attention, repeated keys and values
    and an fp32 softmax beside its cast."""
    logits_fp32: bool = True
    """False: an eager loss runs in the compute dtype, as in torchtune and in models that do not upcast their logits."""
    shifted_logits: bool = False
    """The transformers library before 4.50 shifts fp32 logits against their labels: one more copy of them."""
    logit_metrics: Annotated[int, Field(ge=0, le=16)] = 0
    """Cross entropies that a trainer makes again in fp32 of every micro-batch's logits, for its log (Composer:
    LanguageCrossEntropy and LanguagePerplexity)."""
    grouped_experts: bool = False
    """The library's experts as one grouped product (experts_implementation="grouped_mm") instead of a loop."""
    compile: bool = False
    channels_last: bool = True
    """Images and their features lie channels last, as mixed-precision recipes set it (memory_format). False, torch's
    own default: every 16-bit convolution transposes what it reads and writes for the tensor cores."""
    overlap: bool = True
    offload_checkpoints: bool = False
    """Inputs of fully recomputed layers rest in the host's memory from forward to backward (DeepSpeed's
    cpu_checkpointing, offloaded checkpointing of fine-tuning libraries)."""
    offload_streams: bool = False
    """Copies of activations that a strategy moves to the host run beside compute, as torchtune's OffloadActivations
    does it; otherwise they wait (torch.autograd.graph.save_on_cpu, offload_wrapper, cpu_checkpointing)."""
    optimizer_impl: Literal["auto", "fused", "foreach", "loop", "in_backward"] = "auto"
    """foreach makes one more copy of its shard in the step, fused and loop do not; in_backward steps every parameter as
    soon as its gradient is there, so that no gradients are kept, and takes one micro-batch a step; auto is the engine's
    usual one."""


class DdpOptions(TorchOptions):
    """DistributedDataParallel's buckets."""

    gradient_as_bucket_view: bool = True
    """False, as torch's own default is: gradients are copied into buckets of their size."""


class ParameterServerOptions(TorchOptions):
    """How many ranks serve."""

    servers: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Ranks that share aggregate and optimizer evenly, and work too."""


class Fsdp1Options(TorchOptions):
    """FullyShardedDataParallel: how far gathers run ahead, and when gradients are reduced."""

    limit_all_gathers: bool = True
    backward_prefetch: Literal["backward_pre", "backward_post", "none"] = "backward_pre"
    sync_every_micro_batch: bool = True
    """False: gradients of all but the last micro-batch stay whole on every rank (no_sync)."""


class TorchtitanOptions(TorchOptions):
    """torchtitan: FSDP2's resharding, float8 gathers, asynchronous tensor parallelism."""

    reshard_after_forward: Literal["default", "always", "never"] = "default"
    """default: parameters are resharded unless there is a pipeline."""
    float8_all_gather: bool = False
    """Linear layers' parameters are cast to float8 before they are gathered."""
    async_tp: bool = False
    ep_overlap: bool = True
    """Under dualpipe-v, exchanges of experts run beside the pass of another micro-batch
    (pipeline_parallel_expert_parallel_overlap, 0.3; no activation checkpointing with it)."""


class DeepSpeedOptions(TorchOptions):
    """DeepSpeed's zero_optimization section, sizes in elements as there."""

    modules: Literal["fused", "reference", "transformers", "megatron"] = "fused"  # type: ignore[assignment]
    """As in the torch engines; megatron: Megatron-DeepSpeed's fused kernels and padded vocabulary."""
    grad_dtype: Literal["fp32", "bf16"] = "bf16"
    """Accumulation of gradients: bf16 is the compute dtype; fp32 is data_types.grad_accum_dtype."""
    immediate_grad_update: bool = True
    """With fp32 accumulation up to stage 1: False, as before 0.14, keeps the 16-bit gradients beside the fp32 ones."""
    reduce_bucket_size: Annotated[float, Field(ge=1.0, le=1e12)] = 5e8
    allgather_bucket_size: Annotated[float, Field(ge=1.0, le=1e12)] = 5e8
    contiguous_gradients: bool = True
    overlap_comm: Literal["auto", "on", "off"] = "auto"
    """auto: on at stage 3 alone."""
    stage3_max_live_parameters: Annotated[float, Field(ge=1.0, le=1e12)] = 1e9
    stage3_max_reuse_distance: Annotated[float, Field(ge=1.0, le=1e12)] = 1e9
    """Parameters that are used again within so many elements are not released."""
    stage3_prefetch_bucket_size: Annotated[float, Field(ge=0.0, le=1e12)] = 5e7
    sub_group_size: Annotated[float, Field(ge=1.0, le=1e14)] = 1e9
    """Elements whose optimizer step runs together at stage 3."""
    zero_hpz_partition_size: Annotated[int, Field(ge=1, le=65_536)] = 1
    zero_quantized_weights: bool = False
    """ZeRO++ qwZ: parameters are gathered in int8."""
    zero_quantized_gradients: bool = False
    """ZeRO++ qgZ: gradients are reduced by all-to-alls in int4."""
    partition_activations: bool = False
    """Inputs of fully recomputed layers are divided over tensor-parallel ranks."""
    offload_device: Literal["cpu", "nvme"] = "cpu"
    nvme_bytes_per_s: Annotated[float, Field(ge=1e6, le=1e13)] = 10e9
    """Bytes/s that a node reads or writes on its NVMe drives, all devices together (assumed)."""
    nvme_buffer_count: Annotated[int, Field(ge=1, le=1024)] = 4
    """Host buffers, of a sub-group's states each, through which the step swaps (offload_optimizer.buffer_count)."""
