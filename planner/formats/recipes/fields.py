"""Where Megatron-LM's arguments stand in a Megatron-Bridge ConfigContainer (0.6) and in a NeMo 2 recipe (2.5)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["number", "switch", "word", "words"]


@dataclass(frozen=True, slots=True)
class Place:
    """Dotted fields of one argument, the first one read; `off` where the field says the opposite of the switch."""

    bridge: tuple[str, ...]
    nemo: tuple[str, ...]
    kind: Kind = "number"
    off: bool = False


def _core(name: str, kind: Kind = "number") -> Place:
    """A field of TransformerConfig: `model.` in Bridge, `model.config.` in NeMo."""
    return Place((f"model.{name}",), (f"model.config.{name}",), kind)


def _axis(name: str, kind: Kind = "number") -> Place:
    """A degree: a field of the model in Bridge, of the strategy in NeMo."""
    return Place((f"model.{name}",), (f"trainer.strategy.{name}",), kind)


PLACES: Final[Mapping[str, Place]] = {
    "tensor-model-parallel-size": _axis("tensor_model_parallel_size"),
    "pipeline-model-parallel-size": _axis("pipeline_model_parallel_size"),
    "context-parallel-size": _axis("context_parallel_size"),
    "expert-model-parallel-size": _axis("expert_model_parallel_size"),
    "expert-tensor-parallel-size": _axis("expert_tensor_parallel_size"),
    "sequence-parallel": _axis("sequence_parallel", "switch"),
    "num-virtual-stages-per-pipeline-rank": _axis("virtual_pipeline_model_parallel_size"),
    "pipeline-model-parallel-layout": _axis("pipeline_model_parallel_layout", "word"),
    "decoder-first-pipeline-num-layers": _axis("num_layers_in_first_pipeline_stage"),
    "decoder-last-pipeline-num-layers": _axis("num_layers_in_last_pipeline_stage"),
    "account-for-embedding-in-pipeline-split": _axis("account_for_embedding_in_pipeline_split", "switch"),
    "account-for-loss-in-pipeline-split": _axis("account_for_loss_in_pipeline_split", "switch"),
    "cp-comm-type": _core("cp_comm_type", "word"),
    "micro-batch-size": Place(("train.micro_batch_size",), ("data.micro_batch_size",)),
    "global-batch-size": Place(("train.global_batch_size",), ("data.global_batch_size",)),
    "seq-length": Place(
        ("model.seq_length", "dataset.seq_length"), ("data.seq_length", "model.config.seq_length")
    ),
    "make-vocab-size-divisible-by": _core("make_vocab_size_divisible_by"),
    "use-distributed-optimizer": Place(
        ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"),
        ("optim.config.use_distributed_optimizer",),
        "switch",
    ),
    "num-distributed-optimizer-instances": Place(
        ("ddp.num_distributed_optimizer_instances",),
        ("trainer.strategy.ddp.num_distributed_optimizer_instances",),
    ),
    "overlap-grad-reduce": Place(
        ("ddp.overlap_grad_reduce",), ("trainer.strategy.ddp.overlap_grad_reduce",), "switch"
    ),
    "overlap-param-gather": Place(
        ("ddp.overlap_param_gather",), ("trainer.strategy.ddp.overlap_param_gather",), "switch"
    ),
    "grad-reduce-in-bf16": Place((), ("trainer.plugins.grad_reduce_in_fp32",), "switch", off=True),
    "fp8-param-gather": Place((), ("trainer.plugins.fp8_param_gather",), "switch"),
    "use-megatron-fsdp": Place(
        ("ddp.use_megatron_fsdp",), ("trainer.strategy.ddp.use_custom_fsdp",), "switch"
    ),
    "data-parallel-sharding-strategy": Place(
        ("ddp.data_parallel_sharding_strategy",),
        ("trainer.strategy.ddp.data_parallel_sharding_strategy",),
        "word",
    ),
    "recompute-granularity": _core("recompute_granularity", "word"),
    "recompute-method": _core("recompute_method", "word"),
    "recompute-num-layers": _core("recompute_num_layers"),
    "recompute-modules": _core("recompute_modules", "words"),
    "fine-grained-activation-offloading": _core("fine_grained_activation_offloading", "switch"),
    "hierarchical-context-parallel-sizes": _core("hierarchical_context_parallel_sizes", "words"),
    "offload-modules": _core("offload_modules", "words"),
    "cpu-offloading": _core("cpu_offloading", "switch"),
    "cpu-offloading-num-layers": _core("cpu_offloading_num_layers"),
    "hidden-dropout": _core("hidden_dropout"),
    "attention-dropout": _core("attention_dropout"),
    "attention-backend": _core("attention_backend", "word"),
    "cross-entropy-loss-fusion": _core("cross_entropy_loss_fusion", "switch"),
    "cross-entropy-fusion-impl": _core("cross_entropy_fusion_impl", "word"),
    "deterministic-mode": _core("deterministic_mode", "switch"),
    "mtp-num-layers": _core("mtp_num_layers"),
    "moe-token-dispatcher-type": _core("moe_token_dispatcher_type", "word"),
    "moe-flex-dispatcher-backend": _core("moe_flex_dispatcher_backend", "word"),
    "moe-expert-capacity-factor": _core("moe_expert_capacity_factor"),
    "moe-pad-expert-input-to-capacity": _core("moe_pad_expert_input_to_capacity", "switch"),
    "moe-grouped-gemm": _core("moe_grouped_gemm", "switch"),
    "moe-router-dtype": _core("moe_router_dtype", "word"),
    "no-gradient-accumulation-fusion": Place(
        ("model.gradient_accumulation_fusion",),
        ("model.config.gradient_accumulation_fusion",),
        "switch",
        off=True,
    ),
    "no-overlap-p2p-communication": Place(
        ("comm_overlap.overlap_p2p_comm",), ("model.config.overlap_p2p_comm",), "switch", off=True
    ),
    "no-masked-softmax-fusion": Place(
        ("model.masked_softmax_fusion",), ("model.config.masked_softmax_fusion",), "switch", off=True
    ),
    "optimizer": Place(("optimizer.optimizer",), ("optim.config.optimizer",), "word"),
    "use-precision-aware-optimizer": Place(
        ("optimizer.use_precision_aware_optimizer",),
        ("optim.config.use_precision_aware_optimizer",),
        "switch",
    ),
    "exp-avg-dtype": Place(("optimizer.exp_avg_dtype",), ("optim.config.exp_avg_dtype",), "word"),
    "exp-avg-sq-dtype": Place(("optimizer.exp_avg_sq_dtype",), ("optim.config.exp_avg_sq_dtype",), "word"),
    "main-params-dtype": Place(("optimizer.main_params_dtype",), ("optim.config.main_params_dtype",), "word"),
    "optimizer-cpu-offload": Place(
        ("optimizer.optimizer_cpu_offload",), ("optim.config.optimizer_cpu_offload",), "switch"
    ),
    "optimizer-offload-fraction": Place(
        ("optimizer.optimizer_offload_fraction",), ("optim.config.optimizer_offload_fraction",)
    ),
    "tp-comm-overlap": Place(
        ("comm_overlap.tp_comm_overlap",), ("trainer.callbacks.tp_comm_overlap",), "switch"
    ),
    "overlap-moe-expert-parallel-comm": Place(
        ("comm_overlap.overlap_moe_expert_parallel_comm",),
        ("model.config.overlap_moe_expert_parallel_comm",),
        "switch",
    ),
}
"""Megatron-LM's argument -> its fields."""

READ_ONLY: Final[Mapping[str, Mapping[str, str]]] = {
    "bridge": {
        "dataset.sequence_length": "seq-length",  # before 0.6, which copies seq_length over it
        "mixed_precision.grad_reduce_in_fp32": "grad-reduce-in-bf16",
        "mixed_precision.fp8_param_gather": "fp8-param-gather",
    },
    "nemo": {},
}
"""Fields that are read and not written: of other releases, or of a precision that is no plain name."""

OVERWRITTEN: Final = tuple(
    f"{section}.{name}"
    for section in ("ddp", "trainer.strategy.ddp")
    for name in ("grad_reduce_in_fp32", "fp8_param_gather")
)
"""Fields that the mixed precision overwrites when the run starts (training/mixed_precision.py), whatever they say."""

PRECISION_FIELDS: Final = {"bridge": "mixed_precision", "nemo": "trainer.plugins"}
PRECISIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "bf16_mixed": {"bf16": "true"},
    "fp16_mixed": {"fp16": "true"},
    "bf16_with_fp8_current_scaling_mixed": {
        "bf16": "true",
        "fp8-format": "hybrid",
        "fp8-recipe": "tensorwise",
        "fp8-param-gather": "true",
    },
    "bf16_with_fp8_delayed_scaling_mixed": {
        "bf16": "true",
        "fp8-format": "hybrid",
        "fp8-recipe": "delayed",
        "fp8-param-gather": "true",
    },
    "bf16_with_fp8_subchannel_scaling_mixed": {
        "bf16": "true",
        "fp8-format": "hybrid",
        "fp8-recipe": "blockwise",
        "fp8-param-gather": "true",
    },
    "bf16_with_mxfp8_mixed": {
        "bf16": "true",
        "fp8-format": "e4m3",
        "fp8-recipe": "mxfp8",
        "fp8-param-gather": "true",
    },
}
"""Named mixed precisions -> arguments; the first name that means the same is written."""

NAMING: Final = ("bf16", "fp16", "fp8-format", "fp8-recipe")
"""Arguments that choose among the names."""

RECIPE_DEFAULTS: Final[Mapping[str, str]] = {
    "cross-entropy-loss-fusion": "true",
    "hidden-dropout": "0.0",
    "attention-dropout": "0.0",
    "use-distributed-optimizer": "true",
    "overlap-grad-reduce": "true",
    "overlap-param-gather": "true",
    "moe-grouped-gemm": "true",
    "moe-router-dtype": "fp32",
}
"""What recipes of both frameworks state themselves where a user overrides nothing: assumed, and listed so."""

IGNORED: Final = frozenset(
    (
        "train.train_iters", "train.eval_iters", "train.eval_interval", "scheduler", "logger", "checkpoint",
        "tokenizer", "rng", "dist", "profiling", "dataset", "trainer.max_steps", "trainer.num_nodes",
        "trainer.devices", "trainer.log_every_n_steps", "trainer.limit_val_batches", "trainer.val_check_interval",
        "log", "resume", "optim.lr_scheduler", "optim.config.lr", "optim.config.weight_decay", "optimizer.lr",
        "optimizer.min_lr", "optimizer.weight_decay", "optimizer.adam_beta1", "optimizer.adam_beta2",
        "optimizer.clip_grad", "model.rotary_base", "trainer.strategy.ckpt_async_save",
        "trainer.strategy.pipeline_dtype", "model.pipeline_dtype",
    )
)  # fmt: skip
"""Fields, or sections, that change neither memory nor time here."""
