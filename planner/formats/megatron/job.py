"""Megatron-LM arguments -> the job: batch, precision, optimizer and engine options."""

from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest, Optimizer, Precision
from planner.formats.megatron.arguments import Arguments
from planner.formats.megatron.strategy import predictions_stage

OPTIMIZERS: Final = {
    "adam": Optimizer.ADAMW,
    "sgd": Optimizer.SGD,
    "muon": Optimizer.MUON,
    "dist_muon": Optimizer.MUON,
}
FP8_RECIPES: Final = {"mxfp8": Precision.MXFP8}
DTYPES: Final = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}


def read_job(arguments: Arguments, data_parallel: int, program: str, version: str = "") -> JobRequest:
    """The job of a run on `data_parallel` ranks; raises BadInput naming the argument."""
    micro = arguments.whole("micro-batch-size")
    batch = arguments.whole("global-batch-size", _scheduled(arguments) or micro * data_parallel)
    batch = _running(arguments, batch, micro * data_parallel)
    return JobRequest(
        seq_len=_sequence(arguments, program),
        global_batch=batch,
        precision=_precision(arguments),
        engine=f"megatron@{version}" if version else "megatron",
        optimizer=_optimizer(arguments),
        options=_options(arguments, program, data_parallel),
    )


def _running(arguments: Arguments, batch: int, unit: int) -> int:
    """The batch that runs: where it may be decreased, the multiple below of what a micro-batch of all ranks takes
    (core/num_microbatches_calculator.py). A ramp ends at the batch in whole increments."""
    ramp = arguments.text("rampup-batch-size").strip("[]").replace(",", " ").split()
    if ramp and len(ramp) == 3 and all(word.isdigit() for word in ramp):
        start, step = int(ramp[0]), int(ramp[1])
        if step and (batch - start) % step:
            raise BadInput(
                f"--rampup-batch-size {start} {step}: {batch} - {start} is not divisible by {step}; use an increment "
                f"that divides {batch - start}",
                pointer="/rampup-batch-size",
            )
    if not arguments.flag("decrease-batch-size-if-needed") or batch % unit == 0:
        return batch
    runs = batch // unit * unit
    if not runs:
        raise BadInput(
            f"--global-batch-size {batch} is less than one micro-batch of all ranks, {unit}; give at least {unit}",
            pointer="/global-batch-size",
        )
    arguments.assume("global-batch-size", runs)
    return runs


def _scheduled(arguments: Arguments) -> int:
    """The batch that --step-batch-size-schedule starts with (`0:384 200B:768`), which is assumed; 0 without one."""
    first = arguments.text("step-batch-size-schedule").partition(" ")[0].rpartition(":")[2]
    if not first:
        return 0
    if not first.isdigit() or not 0 < int(first) < 10**9:
        raise BadInput(
            f"--step-batch-size-schedule {first:.40} is no batch size; write for example 0:384 200B:768",
            pointer="/step-batch-size-schedule",
        )
    if not arguments.has("global-batch-size"):
        arguments.assume("global-batch-size", first)
    return int(first)


def _sequence(arguments: Arguments, program: str) -> int:
    if program == "t5":
        return arguments.whole("encoder-seq-length")
    return arguments.whole("seq-length")


def _precision(arguments: Arguments) -> Precision:
    if arguments.flag("bf16") and arguments.flag("fp16"):
        raise BadInput("--bf16 and --fp16 are both given; keep one", pointer="/fp16")
    if arguments.has("fp8-format"):
        arguments.one_of("fp8-format", ("e4m3", "hybrid"))
        arguments.one_of("fp8-recipe", ("tensorwise", "delayed", "mxfp8", "blockwise", "custom"))
        return FP8_RECIPES.get(arguments.text("fp8-recipe"), Precision.FP8)
    if arguments.flag("fp16"):
        return Precision.FP16
    return Precision.BF16 if arguments.flag("bf16") else Precision.FP32


def _optimizer(arguments: Arguments) -> Optimizer:
    name = arguments.text("optimizer", "adam")
    if name not in OPTIMIZERS:
        raise BadInput(
            f"--optimizer {name:.40} is not read; use {', '.join(OPTIMIZERS)}", pointer="/optimizer"
        )
    return OPTIMIZERS[name]


def _options(arguments: Arguments, program: str, data_parallel: int) -> dict[str, Any]:
    """Typed options of the engine and the job."""
    options: dict[str, Any] = {
        "engine.attention": _attention(arguments),
        "engine.fused_cross_entropy": arguments.flag("cross-entropy-loss-fusion"),
        "engine.vocabulary_multiple": arguments.whole("make-vocab-size-divisible-by", 128),
        "engine.overlap_grad_reduce": arguments.flag("overlap-grad-reduce"),
        "engine.overlap_param_gather": arguments.flag("overlap-param-gather"),
        "engine.overlap_p2p": not arguments.flag("no-overlap-p2p-communication"),
        "engine.tp_comm_overlap": arguments.flag("tp-comm-overlap"),
        "engine.ep_overlap": arguments.flag("overlap-moe-expert-parallel-comm"),
        "engine.router_fp32": arguments.text("moe-router-dtype") in ("fp32", "fp64"),
        "engine.dropout": arguments.number("hidden-dropout", 0.1) > 0
        or arguments.number("attention-dropout", 0.1) > 0,
        "engine.grad_dtype": _gradient_dtype(arguments),
        "engine.transformer_impl": _implementation(arguments),
        "engine.deterministic": arguments.flag("deterministic-mode"),
        "engine.gradient_accumulation_fusion": not arguments.flag("no-gradient-accumulation-fusion"),
        "engine.softmax_fusion": not arguments.flag("no-masked-softmax-fusion"),
        "engine.grouped_gemm": arguments.flag("moe-grouped-gemm"),
        "engine.deferred_head_batches": _deferred(arguments, data_parallel),
    }
    if arguments.flag("enable-cuda-graph") or arguments.text("cuda-graph-impl", "none") != "none":
        options["engine.cuda_graphs"] = True
    if arguments.text("cross-entropy-fusion-impl") == "te":
        options["engine.cross_entropy_impl"] = "te"
    options |= _sharded(arguments) | _optimizer_dtypes(arguments)
    if program == "t5":
        options["job.decoder_seq_len"] = arguments.whole("decoder-seq-length")
    if arguments.has("moe-expert-capacity-factor"):
        options["job.moe_capacity_factor"] = arguments.number("moe-expert-capacity-factor")
    if arguments.text("moe-token-dispatcher-type") == "flex":
        backend = arguments.text("moe-flex-dispatcher-backend", "deepep")
        options["job.moe_dispatcher"] = "hybridep" if backend == "hybridep" else "deepep"
    if arguments.has("mtp-num-layers"):
        options["job.train_mtp"] = True
        if predictions_stage(arguments) is not None:
            options["engine.mtp_in_stages"] = True
    return options


def _sharded(arguments: Arguments) -> dict[str, Any]:
    """Options of narrow parameters and of Megatron-FSDP."""
    options: dict[str, Any] = {}
    if arguments.has("fp8-format") and not (arguments.flag("bf16") or arguments.flag("fp16")):
        options["engine.wide_dtype"] = "fp32"
    if arguments.has("fp8-format") and arguments.text("fp8-recipe", "delayed") == "delayed":
        options["engine.fp8_recipe"] = "delayed"
    if arguments.flag("fp8-param-gather"):
        options["engine.fp8_param_gather"] = True
    if not arguments.flag("use-megatron-fsdp"):
        return options
    options["engine.megatron_fsdp"] = True
    options["engine.fsdp_double_buffer"] = arguments.flag("fsdp-double-buffer")
    main = arguments.text("megatron-fsdp-main-params-dtype", "fp32")
    options["engine.master_dtype"] = "bf16" if main == "auto" else main
    if arguments.has("suggested-communication-unit-size"):
        options["engine.communication_unit_elements"] = arguments.number("suggested-communication-unit-size")
    return options


def _optimizer_dtypes(arguments: Arguments) -> dict[str, Any]:
    """Moments and main weights of --use-precision-aware-optimizer: of fp32 main weights it stores what bf16 lacks."""
    if not arguments.flag("use-precision-aware-optimizer"):
        return {}
    options: dict[str, Any] = {}
    if arguments.has("exp-avg-dtype"):
        options["engine.moment_dtype"] = _dtype(arguments, "exp-avg-dtype")
    if arguments.has("exp-avg-sq-dtype"):
        options["engine.second_moment_dtype"] = _dtype(arguments, "exp-avg-sq-dtype")
    main = _dtype(arguments, "main-params-dtype") if arguments.has("main-params-dtype") else "fp32"
    kept = main == "fp32" and arguments.flag("bf16") and not arguments.flag("optimizer-cpu-offload")
    options["engine.master_dtype"] = "remainder" if kept else main
    return options


def _attention(arguments: Arguments) -> str:
    """Unfused where asked, or where the local implementation runs without flash attention."""
    backend = arguments.text("attention-backend", "auto").rpartition(".")[2]  # Bridge's is AttnBackend.flash
    if backend in ("unfused", "local"):
        return "unfused"
    local = _implementation(arguments) == "local"
    return "unfused" if local and not arguments.flag("use-flash-attn") else "flash"


def _implementation(arguments: Arguments) -> str:
    """Transformer Engine's modules unless the local ones are asked for."""
    local = arguments.text("transformer-impl", "transformer_engine") == "local"
    return "local" if local else "transformer_engine"


def _deferred(arguments: Arguments, data_parallel: int) -> int:
    """Micro-batches whose weight gradient of the head waits: up to --wgrad-deferral-limit, all of a step where it is 0.

    Only a pipeline defers (megatron/core/pipeline_parallel/schedules.py, finish_embedding_wgrad_compute).
    """
    pipelined = arguments.whole("pipeline-model-parallel-size", 1) > 1
    if not (arguments.flag("defer-embedding-wgrad-compute") and pipelined):
        return 0
    micro = arguments.whole("micro-batch-size")
    batch = arguments.whole("global-batch-size", _scheduled(arguments) or micro * data_parallel)
    all_of_them = batch // (micro * data_parallel)
    limit = arguments.whole("wgrad-deferral-limit", 0, low=0)
    return min(limit, all_of_them) if limit else all_of_them


def _gradient_dtype(arguments: Arguments) -> str:
    """fp32 accumulation comes with bf16 unless --grad-reduce-in-bf16 or bf16 main gradients are asked for."""
    if arguments.flag("use-megatron-fsdp"):
        return _fsdp_gradient_dtype(arguments)
    if arguments.flag("grad-reduce-in-bf16") or arguments.text("main-grads-dtype") == "bf16":
        return "bf16"
    if arguments.flag("fp16") and not arguments.flag("accumulate-allreduce-grads-in-fp32"):
        return "bf16"  # 16-bit gradients of an fp16 run: two bytes
    return "fp32"


def _fsdp_gradient_dtype(arguments: Arguments) -> str:
    """Main gradients of Megatron-FSDP: as stated, `auto` is the model's type; fp32 before there was an argument."""
    stated = arguments.text("megatron-fsdp-main-grads-dtype", "fp32")
    wide = "bf16" if arguments.flag("bf16") or arguments.flag("fp16") else "fp32"
    return {"auto": wide, "fp16": "bf16"}.get(stated, stated)


def _dtype(arguments: Arguments, name: str) -> str:
    text = arguments.text(name)
    if text not in DTYPES:
        raise BadInput(f"--{name} {text:.40} is not a dtype; use {', '.join(DTYPES)}", pointer=f"/{name}")
    return DTYPES[text]
