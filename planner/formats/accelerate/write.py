"""A planned run -> Accelerate's YAML, the Trainer's arguments, a script and its launch line."""

from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from planner.formats.accelerate.read import read_accelerate
from planner.formats.accelerate.write_inside import deepspeed_section, megatron_section
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
TYPES: Final = {"fsdp2": "FSDP", "ddp": "MULTI_GPU", "deepspeed": "DEEPSPEED", "megatron": "MEGATRON_LM"}
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
    if run.job.engine not in TYPES:
        raise BadInput(
            f"the plan is for engine {run.job.engine}; Accelerate runs {', '.join(TYPES)}: plan again with one of them "
            "(--engine fsdp2)"
        )
    text = (
        "\n".join(header(run, "Accelerate", VERSION)) + "\n" + yaml.safe_dump(config_of(run), sort_keys=False)
    )
    if run.job.engine == "megatron":
        program = '"${SCRIPT:?set SCRIPT to a training script that uses accelerate.Accelerator}"'
        files = {CONFIG: text, LAUNCH: library_script(run, ("Accelerate", VERSION), LAUNCH_LINES, program)}
        losses = read_back_losses(run, lambda beside: read_accelerate(text, beside), ("mbs",))
        return Export("accelerate", VERSION, files, LAUNCH, losses)
    files = {
        CONFIG: text,
        ARGUMENTS: as_json(_trainer_arguments(run)),
        PROGRAM: program_text(run),
        LAUNCH: library_script(run, ("Accelerate", VERSION), LAUNCH_LINES, f"{PROGRAM} {ARGUMENTS}"),
    }
    losses = read_back_losses(run, lambda beside: read_accelerate(text, beside), ("recompute", "mbs"))
    return Export("accelerate", VERSION, files, LAUNCH, (*losses, *module_losses(run)))


def _trainer_arguments(run: PlannedRun) -> dict[str, Any]:
    """The Trainer's arguments; FSDP's own switch recomputes, not the Trainer's."""
    switch: dict[str, Any] = {"gradient_checkpointing": False} if run.job.engine == "fsdp2" else {}
    return arguments_of(run, {}) | switch


def config_of(run: PlannedRun) -> dict[str, Any]:
    """The YAML's keys."""
    nodes, each = run.nodes
    job = run.job
    if job.precision not in PRECISIONS:
        raise BadInput(
            f"precision {job.precision.value} is not written for Accelerate; use bf16, fp16 or fp32"
        )
    found: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": TYPES[job.engine],
        "mixed_precision": PRECISIONS[job.precision],
        "num_machines": nodes,
        "num_processes": nodes * each,
        "machine_rank": 0,
    }
    if job.engine == "deepspeed":
        return found | {"deepspeed_config": deepspeed_section(run)}
    if job.engine == "megatron":
        return found | {"megatron_lm_config": megatron_section(run)}
    if job.engine == "fsdp2":
        found["fsdp_config"] = _fsdp(run)
    sizes = _sizes(run)
    if sizes:
        found["parallelism_config"] = sizes
    return found


def _fsdp(run: PlannedRun) -> dict[str, Any]:
    """Resharding, recompute and offload of FSDP2."""
    found = {
        "fsdp_version": 2,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_reshard_after_forward": run.strategy.zero == 3,
        "fsdp_activation_checkpointing": arguments_of(run, {})["gradient_checkpointing"],
        "fsdp_offload_params": run.strategy.offload == "parameters",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    if run.strategy.act_offload == "checkpoints":
        found["fsdp_activation_checkpointing_offload"] = True
    return found


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
