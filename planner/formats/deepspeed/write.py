"""A planned run -> DeepSpeed JSON, the Trainer's arguments, a script and its launch line."""

from typing import Any, Final, cast

from cost_models.engines.options import DeepSpeedOptions
from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from cost_models.specs.offload import parse_offload
from planner.formats.deepspeed.read import read_deepspeed
from planner.formats.differences import read_back_losses
from planner.formats.export import Export, PlannedRun, library_script, torchrun_lines
from planner.formats.trainer import ARGUMENTS, PROGRAM, arguments_of, as_json, module_losses, program_text

CONFIG: Final = "ds_config.json"
LAUNCH: Final = "train.sh"
VERSION: Final = "0.19"


def write_deepspeed(run: PlannedRun) -> Export:
    """The files, with what they cannot say; raises BadInput or IllegalStrategy naming what DeepSpeed cannot do."""
    if run.job.engine != "deepspeed":
        raise BadInput(
            f"the plan is for engine {run.job.engine}, whose memory and legality are not DeepSpeed's; plan again with "
            "--engine deepspeed"
        )
    if run.strategy.pp > 1:
        raise BadInput(
            f"pp {run.strategy.pp}: DeepSpeed's pipelines are a PipelineModule in code, which the Trainer "
            "has not; use pp 1"
        )
    if run.strategy.ep > 1:
        raise BadInput(
            f"ep {run.strategy.ep}: experts are divided in code (deepspeed.moe), not by JSON; use ep 1"
        )
    text, version = as_json(config_of(run)), run.job.engine_version or VERSION
    files = {
        CONFIG: text,
        ARGUMENTS: as_json(arguments_of(run, {"deepspeed": CONFIG})),
        PROGRAM: program_text(run),
        LAUNCH: library_script(run, ("DeepSpeed", version), torchrun_lines(run), f"{PROGRAM} {ARGUMENTS}"),
    }
    losses = read_back_losses(run, lambda beside: read_deepspeed(text, beside), ("recompute",))
    return Export("deepspeed", version, files, LAUNCH, (*losses, *module_losses(run)))


def config_of(run: PlannedRun) -> dict[str, Any]:
    """The JSON: batch, precision, ZeRO, axes; every number that the plan rests on is written out."""
    job, strategy = run.job, run.strategy
    options = cast(DeepSpeedOptions, run.situation.engine.options)
    found: dict[str, Any] = {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": strategy.mbs,
        "gradient_accumulation_steps": strategy.num_micro_batches(job.global_batch),
        "bf16": {"enabled": job.precision is Precision.BF16},
        "fp16": {"enabled": job.precision is Precision.FP16},
        "gradient_clipping": 1.0,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": _zero(run, options),
    }
    if options.grad_dtype == "fp32":
        found["data_types"] = {"grad_accum_dtype": "fp32"}
    checkpoints = {
        "partition_activations": options.partition_activations,
        "cpu_checkpointing": options.offload_checkpoints or strategy.act_offload == "checkpoints",
    }
    if any(checkpoints.values()):
        found["activation_checkpointing"] = {key: True for key, is_on in checkpoints.items() if is_on}
    if strategy.tp > 1:
        found["tensor_parallel"] = {"autotp_size": strategy.tp}
    if strategy.cp > 1:
        found["sequence_parallel_size"] = strategy.cp
    return found


def _zero(run: PlannedRun, options: DeepSpeedOptions) -> dict[str, Any]:
    """The section zero_optimization."""
    offload = parse_offload(run.strategy.offload)
    found: dict[str, Any] = {
        "stage": run.strategy.zero,
        "reduce_bucket_size": int(options.reduce_bucket_size),
        "allgather_bucket_size": int(options.allgather_bucket_size),
        "contiguous_gradients": options.contiguous_gradients,
        "overlap_comm": options.overlap_comm == "on"
        or (options.overlap_comm == "auto" and run.strategy.zero == 3),
    }
    if run.strategy.zero == 3:
        found["stage3_max_live_parameters"] = int(options.stage3_max_live_parameters)
        found["sub_group_size"] = int(options.sub_group_size)
        found["zero_hpz_partition_size"] = options.zero_hpz_partition_size
        found["stage3_max_reuse_distance"] = int(options.stage3_max_reuse_distance)
        found["stage3_prefetch_bucket_size"] = int(options.stage3_prefetch_bucket_size)
        for key in ("zero_quantized_weights", "zero_quantized_gradients"):
            if getattr(options, key):
                found[key] = True
    place: dict[str, Any] = {"device": options.offload_device, "pin_memory": True}
    if options.offload_device == "nvme":
        place["nvme_path"] = "/local_nvme"
    if offload.optimizer:
        share = {"ratio": offload.optimizer} if offload.optimizer < 1 else {}
        found["offload_optimizer"] = {**place, **share}
    if offload.parameters:
        found["offload_optimizer"] = place
        found["offload_param"] = place
    return found
