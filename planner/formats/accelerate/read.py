"""Accelerate YAML -> job and strategy; model, sequence length and batch stand beside it.

Keys: accelerate/commands/config/config_args.py; parallel degrees: accelerate/parallelism_config.py; FSDP's:
accelerate/utils/dataclasses.py (FullyShardedDataParallelPlugin).
"""

from typing import Any, Final

from cost_models.engines.rules import nearest_worlds
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.accelerate.inside_megatron import read_inside_megatron
from planner.formats.deepspeed.read import read_deepspeed
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, batch_of, beside_job, model_beside
from planner.formats.trainer import as_json
from planner.strict_yaml import parse_yaml

TYPES: Final = ("FSDP", "MULTI_GPU", "DEEPSPEED", "MEGATRON_LM", "NO")
PRECISIONS: Final = {
    "no": Precision.FP32,
    "fp16": Precision.FP16,
    "bf16": Precision.BF16,
    "fp8": Precision.FP8,
}
TOP_IGNORED: Final = (
    "compute_environment",
    "debug",
    "downcast_bf16",
    "dynamo_config",
    "enable_cpu_affinity",
    "gpu_ids",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "main_training_function",
    "num_machines",
    "rdzv_backend",
    "same_network",
    "tpu_env",
    "tpu_use_cluster",
    "tpu_use_sudo",
    "use_cpu",
    "fp8_config",
)
FSDP_IGNORED: Final = (
    "fsdp_auto_wrap_policy",
    "fsdp_transformer_layer_cls_to_wrap",
    "fsdp_state_dict_type",
    "fsdp_cpu_ram_efficient_loading",
    "fsdp_sync_module_states",
    "fsdp_use_orig_params",
    "fsdp_backward_prefetch_policy",
    "fsdp_backward_prefetch",
    "fsdp_forward_prefetch",
    "fsdp_min_num_params",
)
FSDP1_STAGES: Final = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
FSDP1_NAMES: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


def read_accelerate(text: str, beside: Beside) -> Settings:
    """Settings of an accelerate launch; raises BadInput naming the key, the numbers and what to change."""
    keys = Keys(parse_yaml(text, "of accelerate", "settings"))
    kind = keys.text("distributed_type", "NO").upper()
    if kind not in TYPES:
        raise BadInput(
            f"distributed_type {kind:.40} is not read; use {', '.join(TYPES)}", pointer="/distributed_type"
        )
    processes = keys.whole("num_processes", beside.devices)
    if processes != beside.devices:
        raise BadInput(
            f"num_processes {processes} is not the cluster's {beside.devices} devices; change one of them",
            pointer="/num_processes",
        )
    if kind == "DEEPSPEED":
        return _inside_deepspeed(keys, beside)
    if kind == "MEGATRON_LM":
        return read_inside_megatron(keys, beside, _precision(keys), TOP_IGNORED)
    model = model_beside(beside, "Accelerate settings do not say which model they train")
    assumed: list[str] = []
    axes = _axes(keys, beside.devices)
    dp = beside.devices // (axes["tp"] * axes["cp"])
    strategy = _fsdp(keys, dp) if kind == "FSDP" else {"zero": 0}
    engine = str(strategy.pop("engine", "ddp" if not _is_split(axes) else "torch"))
    micro, batch = batch_of(
        (0, 0, 0),
        ("per_device_train_batch_size", "gradient_accumulation_steps", "global_batch"),
        dp,
        beside,
        assumed,
    )
    job = beside_job(
        beside,
        engine=engine,
        global_batch=batch,
        precision=_precision(keys),
        optimizer=Optimizer.ADAMW,
        options=_options(keys, kind),
    )
    ignored = keys.ignored(*TOP_IGNORED) + keys.inside("fsdp_config").ignored(*FSDP_IGNORED)
    return Settings(
        "accelerate",
        model,
        job,
        StrategyRequest(**{**axes, **strategy, "dp": dp, "mbs": micro}),
        tuple(assumed),
        ignored,
        tuple(keys.unknown()),
    )


def looks_like_accelerate(text: str) -> bool:
    """YAML with a distributed_type."""
    return any(line.startswith("distributed_type:") for line in text.splitlines())


def _is_split(axes: dict[str, Any]) -> bool:
    return bool(axes["tp"] > 1 or axes["cp"] > 1)


def _precision(keys: Keys) -> Precision:
    name = keys.text("mixed_precision", "no").lower()
    if name not in PRECISIONS:
        raise BadInput(
            f"mixed_precision {name:.40} is not known; use {', '.join(PRECISIONS)}",
            pointer="/mixed_precision",
        )
    return PRECISIONS[name]


def _axes(keys: Keys, devices: int) -> dict[str, Any]:
    """Degrees of parallelism_config, which together are all processes."""
    section = keys.inside("parallelism_config")
    sizes = {
        name: section.whole(f"parallelism_config_{name}_size", 1, low=1)
        for name in ("tp", "cp", "sp", "dp_replicate", "dp_shard")
    }
    section.ignore(
        "parallelism_config_cp_backend",
        "parallelism_config_cp_comm_strategy",
        "parallelism_config_sp_backend",
    )
    if sizes["cp"] > 1 and sizes["sp"] > 1:
        raise BadInput(
            f"cp_size {sizes['cp']} and sp_size {sizes['sp']} are both above 1; Accelerate takes one of them",
            pointer="/parallelism_config/parallelism_config_sp_size",
        )
    found: dict[str, Any] = {"tp": sizes["tp"], "cp": max(sizes["cp"], sizes["sp"])}
    if sizes["tp"] > 1:
        found["sp"] = False  # transformers' own plans shard products alone
    if sizes["sp"] > 1:
        found["cp_kind"] = "ulysses"
    elif sizes["cp"] > 1:
        strategy = section.text("parallelism_config_cp_comm_strategy", "allgather")
        found["cp_kind"] = "ring" if strategy == "alltoall" else "allgather"
    total = sizes["tp"] * found["cp"] * sizes["dp_replicate"] * sizes["dp_shard"]
    stated = any(section.has(f"parallelism_config_{name}_size") for name in ("dp_replicate", "dp_shard"))
    if stated and total != devices:
        raise BadInput(
            f"parallelism_config is {total} processes (tp {sizes['tp']} x cp {found['cp']} x dp_replicate "
            f"{sizes['dp_replicate']} x dp_shard {sizes['dp_shard']}), the cluster has {devices}; make them equal",
            pointer="/parallelism_config",
        )
    inner = sizes["tp"] * found["cp"]
    if devices % inner:
        raise BadInput(
            f"{devices} processes are not divisible by tp {sizes['tp']} x cp {found['cp']} = {inner}; use "
            + ", or ".join(nearest_worlds(devices, inner, "tp x cp"))
        )
    if stated:
        found |= {"dp_replicate": sizes["dp_replicate"], "dp_shard": sizes["dp_shard"]}
    return found


def _fsdp(keys: Keys, dp: int) -> dict[str, Any]:
    """FSDP2's resharding, or FSDP1's sharding strategy; recompute and offload."""
    section = keys.inside("fsdp_config")
    version = section.whole("fsdp_version", 1)
    found: dict[str, Any] = {}
    if section.flag("fsdp_activation_checkpointing"):
        found["recompute"] = "full"
    if section.flag("fsdp_activation_checkpointing_offload"):
        found["act_offload"] = "checkpoints"
    if section.flag("fsdp_offload_params"):
        found["offload"] = "parameters"
    if version == 2:
        if section.text("fsdp_reshard_after_forward", "true").upper() in FSDP1_NAMES:
            raise BadInput(
                f"fsdp_reshard_after_forward {section.text('fsdp_reshard_after_forward'):.40} is FSDP1's spelling; "
                "under fsdp_version 2 it is true or false",
                pointer="/fsdp_config/fsdp_reshard_after_forward",
            )
        section.ignore("fsdp_sharding_strategy")
        return found | {
            "zero": 3 if section.flag("fsdp_reshard_after_forward", True) else 2,
            "engine": "fsdp2",
        }
    name = section.text("fsdp_sharding_strategy", section.text("fsdp_reshard_after_forward", "FULL_SHARD"))
    name = FSDP1_NAMES[int(name) - 1] if name in tuple("12345") else name.upper()
    if name == "NO_SHARD":
        return found | {"zero": 0, "engine": "ddp"}
    if name not in FSDP1_STAGES:
        raise BadInput(
            f"fsdp_sharding_strategy {name:.40} is not known; use {', '.join(FSDP1_NAMES)}",
            pointer="/fsdp_config/fsdp_sharding_strategy",
        )
    machines = keys.whole("num_machines", 1, low=1)
    if name.startswith("HYBRID") and machines > 1 and dp % machines == 0:
        found |= {"dp_replicate": machines, "dp_shard": dp // machines}  # sharded inside a node
    return found | {"zero": FSDP1_STAGES[name], "engine": "fsdp1"}


def _options(keys: Keys, kind: str) -> dict[str, Any]:
    """The library's modules; compiled where dynamo is asked for."""
    section = keys.inside("dynamo_config")
    section.ignore(
        "dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation"
    )
    backend = section.text("dynamo_backend", "no").lower()
    options: dict[str, Any] = {"engine.modules": "transformers"}
    if backend not in ("no", "eager"):
        options["engine.compile"] = True
    return options


def _inside_deepspeed(keys: Keys, beside: Beside) -> Settings:
    """DeepSpeed's settings spelt in Accelerate's keys; a file named there has to be given itself."""
    section = keys.inside("deepspeed_config")
    if section.has("deepspeed_config_file"):
        raise BadInput(
            f"deepspeed_config_file {section.text('deepspeed_config_file')[:100]} holds the settings; give that file "
            "with --format deepspeed"
        )
    zero: dict[str, Any] = {"stage": section.whole("zero_stage", 2)}
    for name, key in (
        ("offload_optimizer", "offload_optimizer_device"),
        ("offload_param", "offload_param_device"),
    ):
        if section.text(key, "none") != "none":
            zero[name] = {"device": section.text(key)}
    values: dict[str, Any] = {
        "zero_optimization": zero,
        "bf16": {"enabled": _precision(keys) is Precision.BF16},
        "fp16": {"enabled": _precision(keys) is Precision.FP16},
        "gradient_accumulation_steps": (
            "auto"
            if section.is_auto("gradient_accumulation_steps")
            else section.whole("gradient_accumulation_steps", 1)
        ),
    }
    section.ignore(
        "gradient_clipping",
        "zero3_init_flag",
        "zero3_save_16bit_model",
        "deepspeed_multinode_launcher",
        "offload_optimizer_nvme_path",
        "offload_param_nvme_path",
        "deepspeed_moe_layer_cls_names",
    )
    inner = read_deepspeed(as_json(values), beside)
    ignored = keys.ignored(*TOP_IGNORED)
    options = {**inner.job.options, "engine.modules": "transformers"}
    job = inner.job.model_copy(update={"options": options})
    return Settings(
        "accelerate", inner.model, job, inner.strategy, inner.assumed, ignored, tuple(keys.unknown())
    )
