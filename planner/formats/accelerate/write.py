"""A planned run -> Accelerate's YAML, the Trainer's arguments, a script and its launch line."""

from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from planner.formats.accelerate.read import read_accelerate
from planner.formats.differences import read_back_losses
from planner.formats.export import Export, PlannedRun, header, library_script
from planner.formats.trainer import ARGUMENTS, PROGRAM, arguments_of, as_json, module_losses, program_text

CONFIG: Final = "accelerate.yaml"
LAUNCH: Final = "train.sh"
VERSION: Final = "1.15"
LAUNCH_LINES: Final = [
    f"accelerate launch --config_file {CONFIG} \\",
    '  --machine_rank "${NODE_RANK:-0}" --main_process_ip "${MASTER_ADDR:-127.0.0.1}" \\',
    '  --main_process_port "${MASTER_PORT:-29500}" \\',
]
ENGINES: Final = ("fsdp2", "ddp")
PRECISIONS: Final = {
    Precision.FP32: "no",
    Precision.TF32: "no",
    Precision.FP16: "fp16",
    Precision.BF16: "bf16",
}
CP_STRATEGIES: Final = {"allgather": "allgather", "ring": "alltoall"}
"""torch's context parallel rotates keys and values by all-to-all (a ring) or gathers them."""


def write_accelerate(run: PlannedRun) -> Export:
    """The files, with what they cannot say; raises BadInput naming what Accelerate cannot do."""
    if run.job.engine not in ENGINES:
        raise BadInput(
            f"the plan is for engine {run.job.engine}; Accelerate runs fsdp2 and ddp (plan again with --engine fsdp2), "
            "and DeepSpeed through its own JSON (--to deepspeed)"
        )
    text = (
        "\n".join(header(run, "Accelerate", VERSION)) + "\n" + yaml.safe_dump(config_of(run), sort_keys=False)
    )
    extra: dict[str, Any] = {}
    if run.job.engine == "fsdp2":
        arguments = arguments_of(run, extra) | {"gradient_checkpointing": False}  # FSDP's own switch does it
    else:
        arguments = arguments_of(run, extra)
    files = {
        CONFIG: text,
        ARGUMENTS: as_json(arguments),
        PROGRAM: program_text(run),
        LAUNCH: library_script(run, ("Accelerate", VERSION), LAUNCH_LINES, f"{PROGRAM} {ARGUMENTS}"),
    }
    losses = read_back_losses(run, lambda beside: read_accelerate(text, beside), ("recompute", "mbs"))
    return Export("accelerate", VERSION, files, LAUNCH, (*losses, *module_losses(run)))


def config_of(run: PlannedRun) -> dict[str, Any]:
    """The YAML's keys."""
    nodes, each = run.nodes
    job = run.job
    if job.precision not in PRECISIONS:
        raise BadInput(
            f"precision {job.precision.value} is not written for Accelerate; use bf16, fp16 or fp32"
        )
    sharded = job.engine == "fsdp2"
    found: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if sharded else "MULTI_GPU",
        "mixed_precision": PRECISIONS[job.precision],
        "num_machines": nodes,
        "num_processes": nodes * each,
        "machine_rank": 0,
    }
    if sharded:
        found["fsdp_config"] = _fsdp(run)
    sizes = _sizes(run)
    if sizes:
        found["parallelism_config"] = sizes
    return found


def _fsdp(run: PlannedRun) -> dict[str, Any]:
    """Resharding, recompute and offload of FSDP2."""
    return {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": run.strategy.zero == 3,
        "fsdp_activation_checkpointing": arguments_of(run, {})["gradient_checkpointing"],
        "fsdp_offload_params": run.strategy.offload == "parameters",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }


def _sizes(run: PlannedRun) -> dict[str, Any]:
    """Degrees, where data parallel alone does not say them."""
    strategy = run.strategy
    if strategy.tp == strategy.cp == strategy.dp_replicate == 1:
        return {}
    found: dict[str, Any] = {
        "parallelism_config_dp_replicate_size": strategy.dp_replicate,
        "parallelism_config_dp_shard_size": strategy.dp_shard,
        "parallelism_config_tp_size": strategy.tp,
    }
    if strategy.cp > 1 and strategy.cp_kind == "ulysses":
        return found | {
            "parallelism_config_sp_size": strategy.cp,
            "parallelism_config_sp_backend": "deepspeed",
        }
    if strategy.cp > 1:
        found["parallelism_config_cp_size"] = strategy.cp
        found["parallelism_config_cp_comm_strategy"] = CP_STRATEGIES[strategy.cp_kind]
    return found
