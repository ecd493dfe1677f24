"""A job and its engine options -> Megatron-LM arguments; what they cannot say is refused."""

from typing import Final, cast

from cost_models.engines.options import MegatronOptions
from cost_models.errors import BadInput
from cost_models.specs.job import Job, Optimizer, Precision
from planner.formats.export import PlannedRun
from planner.formats.megatron.tokens import Raw
from planner.formats.megatron.write_model import learned_positions

PRECISIONS: Final[dict[Precision, Raw]] = {
    Precision.FP32: {},
    Precision.FP16: {"fp16": "true"},
    Precision.BF16: {"bf16": "true"},
    Precision.FP8: {"bf16": "true", "fp8-format": "hybrid", "fp8-recipe": "tensorwise"},
    Precision.MXFP8: {"bf16": "true", "fp8-format": "e4m3", "fp8-recipe": "mxfp8"},
}
OPTIMIZERS: Final = {Optimizer.ADAMW: "adam", Optimizer.SGD: "sgd", Optimizer.MUON: "muon"}
SWITCHES: Final = {
    "fused_cross_entropy": "cross-entropy-loss-fusion",
    "overlap_grad_reduce": "overlap-grad-reduce",
    "overlap_param_gather": "overlap-param-gather",
    "tp_comm_overlap": "tp-comm-overlap",
    "ep_overlap": "overlap-moe-expert-parallel-comm",
    "deterministic": "deterministic-mode",
    "fp8_param_gather": "fp8-param-gather",
    "fsdp_double_buffer": "fsdp-double-buffer",
}
"""Options that are switches on both sides, on where the option is on."""

OFF_SWITCHES: Final = {
    "softmax_fusion": "no-masked-softmax-fusion",
    "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "overlap_p2p": "no-overlap-p2p-communication",
}
"""Options whose switch says that they are off."""


def job_arguments(run: PlannedRun, *, adapters: bool = False) -> Raw:
    """Arguments of batch, precision, optimizer and options; raises BadInput naming what Megatron-LM lacks.

    `adapters` says that the caller has a word for adapters, which Megatron-LM has not.
    """
    job, options = run.job, cast(MegatronOptions, run.situation.engine.options)
    _refuse(job, adapters)
    positions = learned_positions(run.model)
    if 0 < positions < job.seq_len:
        raise BadInput(
            f"{run.model.name} has {positions} learned positions, sequences have {job.seq_len} tokens; use --seq-len "
            f"{positions} or less"
        )
    found: Raw = {
        "seq-length": str(job.seq_len),
        "max-position-embeddings": str(positions or max(job.seq_len, run.model.max_seq_len)),
        "global-batch-size": str(job.global_batch),
        "optimizer": OPTIMIZERS[job.optimizer],
        "make-vocab-size-divisible-by": str(options.vocabulary_multiple),
        **PRECISIONS[job.precision],
    }
    if not options.dropout or not _drops(run):
        found |= {"hidden-dropout": "0.0", "attention-dropout": "0.0"}
    if job.precision is Precision.FP8:
        found["fp8-recipe"] = options.fp8_recipe
    found |= {flag: "true" for name, flag in SWITCHES.items() if getattr(options, name)}
    found |= {flag: "true" for name, flag in OFF_SWITCHES.items() if not getattr(options, name)}
    if not run.strategy.zero:
        found.pop("overlap-param-gather", None)
    return (
        found
        | _attention(options)
        | _dtypes(options, job, run.strategy.offload != "none")
        | _experts(run, options)
    )


def _refuse(job: Job, adapters: bool) -> None:
    """What no argument says."""
    if job.optimizer not in OPTIMIZERS:
        names = ", ".join(each.value for each in OPTIMIZERS)
        raise BadInput(f"optimizer {job.optimizer.value} is not among Megatron-LM's; use {names}")
    if job.precision not in PRECISIONS:
        names = ", ".join(each.value for each in PRECISIONS)
        raise BadInput(
            f"precision {job.precision.value} is not written as Megatron-LM arguments; use {names}"
        )
    if job.options.trainable != "all" and not adapters:
        raise BadInput(
            f"job.trainable={job.options.trainable:.60}: Megatron-LM trains all parameters; export to bridge or "
            "accelerate"
        )


def _drops(run: PlannedRun) -> bool:
    """Whether the model has a dropout anywhere."""
    return any(
        getattr(each, "dropout", False) for kind in run.model.kinds.values() for each in kind.operators
    )


def _attention(options: MegatronOptions) -> Raw:
    """The attention's backend, the modules, the kind of fused loss."""
    found: Raw = {}
    if options.transformer_impl == "local":
        found["transformer-impl"] = "local"
    if options.attention == "unfused":
        found["attention-backend"] = "unfused"
    elif options.transformer_impl == "local":
        found["use-flash-attn"] = "true"
    if options.fused_cross_entropy and options.cross_entropy_impl == "te":
        found["cross-entropy-fusion-impl"] = "te"
    return found


def _dtypes(options: MegatronOptions, job: Job, offloaded: bool) -> Raw:
    """Gradients and optimizer states: what differs from fp32 everywhere needs the precision-aware optimizer."""
    found: Raw = {}
    if options.grad_dtype == "bf16" and job.precision is not Precision.FP32:
        found["grad-reduce-in-bf16"] = "true"
    elif job.precision is Precision.FP16:
        found["accumulate-allreduce-grads-in-fp32"] = "true"
    aware: Raw = {}
    if options.moment_dtype != "fp32":
        aware["exp-avg-dtype"] = options.moment_dtype
        aware["exp-avg-sq-dtype"] = options.moment_dtype
    if options.second_moment_dtype != "same":
        aware["exp-avg-sq-dtype"] = options.second_moment_dtype
    if options.master_dtype in ("fp16", "bf16"):
        aware["main-params-dtype"] = options.master_dtype
    if aware or options.master_dtype == "remainder" or offloaded:
        found |= {"use-precision-aware-optimizer": "true", **aware}
    return found


def _experts(run: PlannedRun, options: MegatronOptions) -> Raw:
    """How tokens reach their experts."""
    if not run.model.is_moe:
        return {}
    job = run.job.options
    found: Raw = {"moe-token-dispatcher-type": "alltoall"}
    if job.moe_dispatcher != "alltoall":
        found = {"moe-token-dispatcher-type": "flex", "moe-flex-dispatcher-backend": job.moe_dispatcher}
    if job.moe_capacity_factor:
        found["moe-expert-capacity-factor"] = f"{job.moe_capacity_factor:g}"
        found["moe-pad-expert-input-to-capacity"] = "true"
    if options.grouped_gemm:
        found["moe-grouped-gemm"] = "true"
    if options.router_fp32:
        found["moe-router-dtype"] = "fp32"
    return found
