"""DeepSpeed JSON -> job and strategy; the model and the sequence length stand beside it.

Keys and defaults: deepspeed/runtime/config.py and runtime/zero/config.py. `auto` is what the Hugging Face Trainer
fills in; where that lies in no file, the default here is listed as assumed.
"""

from typing import Any, Final

from cost_models.engines.rules import nearest_worlds
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.offload import Offload
from cost_models.specs.strategy import StrategyRequest
from cost_models.strict_json import parse_json
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, batch_of, beside_job, model_beside

OPTIMIZERS: Final = {
    "adam": Optimizer.ADAMW,
    "adamw": Optimizer.ADAMW,
    "fusedadam": Optimizer.ADAMW,
    "cpuadam": Optimizer.ADAMW,
    "deepspeedcpuadam": Optimizer.ADAMW,
    "sgd": Optimizer.SGD,
    "muon": Optimizer.MUON,
}
TOP_IGNORED: Final = (
    "gradient_clipping",
    "steps_per_print",
    "wall_clock_breakdown",
    "prescale_gradients",
    "gradient_predivide_factor",
    "scheduler",
    "dump_state",
    "tensorboard",
    "wandb",
    "csv_monitor",
    "comms_logger",
    "flops_profiler",
    "checkpoint",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "communication_data_type",
    "elasticity",
    "aio",
    "activation_checkpointing",
    "memory_breakdown",
    "data_efficiency",
)
SIZES: Final = (
    "reduce_bucket_size",
    "allgather_bucket_size",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_prefetch_bucket_size",
    "sub_group_size",
)
SWITCHES: Final = ("contiguous_gradients", "zero_quantized_weights", "zero_quantized_gradients")
ZERO_IGNORED: Final = (
    "allgather_partitions",
    "reduce_scatter",
    "stage3_param_persistence_threshold",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "round_robin_gradients",
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "ignore_unused_parameters",
    "cpu_offload_use_pin_memory",
)


def read_deepspeed(text: str, beside: Beside) -> Settings:
    """Settings of a DeepSpeed run; raises BadInput naming the key, the numbers and what to change."""
    try:
        values = parse_json(text)
    except ValueError as error:
        raise BadInput(f"the DeepSpeed JSON {error}; correct it") from None
    if not isinstance(values, dict):
        raise BadInput(f"DeepSpeed settings hold a {type(values).__name__}; give a JSON object")
    keys = Keys(values)
    assumed: list[str] = []
    model = model_beside(beside, "DeepSpeed JSON does not say which model it trains")
    axes = _axes(keys)
    inner = axes["tp"] * axes["cp"] * axes["pp"]
    if beside.devices % inner:
        raise BadInput(
            f"{beside.devices} devices are not divisible by tp {axes['tp']} x cp {axes['cp']} x pp {axes['pp']} = "
            f"{inner}; use {', or '.join(nearest_worlds(beside.devices, inner))}"
        )
    dp = beside.devices // inner
    micro, batch = batch_of(
        (
            keys.whole("train_micro_batch_size_per_gpu"),
            keys.whole("gradient_accumulation_steps"),
            keys.whole("train_batch_size"),
        ),
        ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"),
        dp,
        beside,
        assumed,
    )
    job = beside_job(
        beside,
        engine="deepspeed",
        global_batch=batch,
        precision=_precision(keys, assumed),
        optimizer=_optimizer(keys),
        options=_options(keys),
    )
    assumed.append("recompute=none")  # models and the Trainer switch it, not this file
    moved = "checkpoints" if keys.inside("activation_checkpointing").flag("cpu_checkpointing") else None
    states: dict[str, Any] = {"zero": _zero(keys), "offload": _offload(keys), "act_offload": moved}
    strategy = StrategyRequest(**axes, **states, dp=dp, mbs=micro)
    ignored = keys.ignored(*TOP_IGNORED) + keys.inside("zero_optimization").ignored(*ZERO_IGNORED)
    return Settings("deepspeed", model, job, strategy, tuple(assumed), ignored, tuple(keys.unknown()))


def looks_like_deepspeed(text: str) -> bool:
    """A JSON object with a key that only DeepSpeed has."""
    words = ('"zero_optimization"', '"train_micro_batch_size_per_gpu"', '"train_batch_size"')
    return text.lstrip().startswith("{") and any(word in text for word in words)


def _axes(keys: Keys) -> dict[str, Any]:
    """Tensor (AutoTP), Ulysses and pipeline degrees."""
    sequence = max(keys.whole("sequence_parallel_size", 1), 1)
    parallel = keys.inside("tensor_parallel")
    tensor = parallel.whole("autotp_size", parallel.inside("tp").whole("tp_size", 1))
    stages = max(keys.inside("pipeline").whole("stages", 1), 1)
    keys.inside("pipeline").ignore(
        "partition", "partition_method", "activation_checkpoint_interval", "seed_layers"
    )
    found: dict[str, Any] = {"tp": max(tensor, 1), "cp": sequence, "pp": stages}
    return found | ({"cp_kind": "ulysses"} if sequence > 1 else {})


def _zero(keys: Keys) -> int:
    stage = keys.inside("zero_optimization").whole("stage", 0)
    if stage > 3:
        raise BadInput(
            f"zero_optimization.stage is {stage}; use 0, 1, 2 or 3", pointer="/zero_optimization/stage"
        )
    return stage


def _precision(keys: Keys, assumed: list[str]) -> Precision:
    """bf16 or fp16 where switched on, fp32 where nothing is; both at once are refused as DeepSpeed does."""
    names = ("bf16", "bfloat16", "fp16")
    wide = keys.inside("bf16").flag("enabled") or keys.inside("bfloat16").flag("enabled")
    narrow = keys.inside("fp16").flag("enabled")
    keys.inside("bf16").ignore("immediate_grad_update", "check_grad_overflow")
    keys.inside("fp16").ignore(
        "auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale",
        "consecutive_hysteresis", "fp16_master_weights_and_grads",
    )  # fmt: skip
    if wide and narrow:
        raise BadInput("bf16 and fp16 are both enabled; DeepSpeed takes one", pointer="/fp16/enabled")
    if wide or narrow:
        return Precision.BF16 if wide else Precision.FP16
    # "auto" is the Trainer's own precision, which lies in no file.
    open_ones = [name for name in names if keys.inside(name).is_auto("enabled")]
    if open_ones:
        assumed.append(f"{open_ones[0]}.enabled=true")
        return Precision.FP16 if open_ones == ["fp16"] else Precision.BF16
    if not any(keys.inside(name).has("enabled") for name in names):
        assumed.append("bf16.enabled=false")
    return Precision.FP32


def _optimizer(keys: Keys) -> Optimizer:
    section = keys.inside("optimizer")
    section.ignore("params", "legacy_fusion")
    name = section.text("type", "AdamW")
    if name.lower().replace("_", "") not in OPTIMIZERS:
        raise BadInput(
            f"optimizer.type {name:.40} is not modelled; use Adam, AdamW, SGD or Muon",
            pointer="/optimizer/type",
        )
    return OPTIMIZERS[name.lower().replace("_", "")]


def _options(keys: Keys) -> dict[str, Any]:
    """Typed options of the `deepspeed` engine."""
    zero = keys.inside("zero_optimization")
    found: dict[str, Any] = {}
    found |= {f"engine.{key}": max(zero.number(key), 1.0) for key in SIZES if zero.has(key)}
    found |= {f"engine.{key}": zero.flag(key) for key in SWITCHES if zero.has(key)}
    if keys.inside("activation_checkpointing").flag("partition_activations"):
        found["engine.partition_activations"] = True
    if zero.has("overlap_comm"):
        found["engine.overlap_comm"] = "on" if zero.flag("overlap_comm") else "off"
    if zero.whole("zero_hpz_partition_size", 1) > 1:
        found["engine.zero_hpz_partition_size"] = zero.whole("zero_hpz_partition_size")
    if keys.inside("data_types").text("grad_accum_dtype") == "fp32":
        found["engine.grad_dtype"] = "fp32"
    devices = {zero.inside(name).text("device") for name in ("offload_optimizer", "offload_param")}
    if "nvme" in devices:
        found["engine.offload_device"] = "nvme"
    if zero.whole("mics_shard_size", 0, low=-1) > 0:
        raise BadInput(
            f"zero_optimization.mics_shard_size is {zero.whole('mics_shard_size')}: DeepSpeed 0.19 has no MiCS; use "
            "zero_hpz_partition_size, or an HSDP of another framework",
            pointer="/zero_optimization/mics_shard_size",
        )
    return found


def _offload(keys: Keys) -> str:
    """Parameters where they rest on the host, else the optimizer's share."""
    zero = keys.inside("zero_optimization")
    optimizer, parameters = zero.inside("offload_optimizer"), zero.inside("offload_param")
    for section in (optimizer, parameters):
        section.ignore(
            "pin_memory", "nvme_path", "buffer_count", "buffer_size", "fast_init", "max_in_cpu", "pipeline_read",
            "pipeline_write", "pipeline",
        )  # fmt: skip
    old = [
        zero.flag(name) for name in ("cpu_offload", "cpu_offload_param", "cpu_offload_params")
    ]  # before 0.3.16
    devices = [_device(section) for section in (optimizer, parameters)]
    if devices[1] != "none" or any(old[1:]):
        return "parameters"
    share = optimizer.number("ratio", 1.0)
    return "none" if devices[0] == "none" and not old[0] else Offload(share).text()


def _device(section: Keys) -> str:
    """Where an offload section puts its states; an empty section is none, as DeepSpeed's default is."""
    name = section.text("device", "none")
    if name not in ("none", "cpu", "nvme"):
        raise section.wrong("device", "none, cpu or nvme")
    return name
