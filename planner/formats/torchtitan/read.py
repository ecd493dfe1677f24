"""torchtitan options -> job and strategy; the model stands beside them where its flavor is not in the catalog.

Sections and keys: torchtitan/config/job_config.py (0.1, 0.2), torchtitan/config (0.3).
"""

import re
import tomllib
from typing import Any, Final

from cost_models.engines.rules import nearest_worlds
from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, beside_job, model_beside
from planner.formats.shell import shell_words
from planner.formats.torchtitan.stages import MODULE, SCHEDULES, SINGLE, number_of_stages, split

SECTIONS_IGNORED: Final = (
    "job", "profiling", "metrics", "lr_scheduler", "checkpoint", "comm", "memory_estimation", "fault_tolerance",
    "experimental", "validation", "debug", "training_extra", "module", "config", "dump_folder", "hf_assets_path",
    "dataloader", "loss", "tokenizer",
)  # fmt: skip
TRAINING_IGNORED: Final = (
    "dataset", "dataset_path", "steps", "max_norm", "seed", "deterministic", "gc_freq", "gc_debug", "warmup_steps",
    "mixed_precision_reduce", "disable_cuda_graphs", "dtype", "data_parallel_replicate_degree",
)  # fmt: skip
OPTIMIZERS: Final = {"adam": Optimizer.ADAMW, "adamw": Optimizer.ADAMW, "muon": Optimizer.MUON}
ROTATIONS: Final = {"allgather": "allgather", "alltoall": "ring"}
AC_COMMANDS: Final = "activation-checkpoint:"
_STAGES: Final = re.compile(r"^\s*export STAGES=([0-9]{1,9}(?:\+[0-9]{1,9})*)\b", re.MULTILINE)
"""Layers of every stage, as the script that is written for such cuts gives them."""


def read_torchtitan(text: str, beside: Beside) -> Settings:
    """Settings of a torchtitan run; raises BadInput naming the key, the numbers and what to change."""
    keys = Keys(_gathered(_toml(text)) if looks_like_toml(text) else _command_line(text))
    model = model_beside(beside, "torchtitan names a flavor of its registry, not sizes")
    keys.inside("model").ignore(
        "name", "flavor", "tokenizer_path", "hf_assets_path", "converters", "print_after_conversion"
    )
    parallel, training = keys.inside("parallelism"), keys.inside("training")
    axes = _axes(parallel, beside.devices)
    dp = axes["dp_replicate"] * axes["dp_shard"]
    pipeline = _pipeline(parallel, axes["pp"], model.num_blocks)
    local = training.whole("local_batch_size", training.whole("batch_size", 8), low=1)
    batch, micro = _batches(parallel, training, beside, (dp, axes["pp"], local))
    strategy = StrategyRequest(
        **axes,
        **pipeline,
        mbs=micro,
        zero=_zero(parallel, axes["pp"]),
        recompute=_recompute(keys),
        offload=_offload(training),
    )
    job = beside_job(
        beside,
        engine="torchtitan",
        global_batch=batch,
        precision=_precision(keys),
        optimizer=_optimizer(keys),
        options=_options(keys, parallel, training),
    )
    seq_len = training.whole("seq_len", 2048, low=1)
    job = job.model_copy(update={"seq_len": job.seq_len or seq_len})
    assumed = () if training.has("seq_len") or beside.job.get("seq_len") else (f"training.seq_len={seq_len}",)
    ignored = keys.ignored(*SECTIONS_IGNORED) + training.ignored(*TRAINING_IGNORED)
    return Settings("torchtitan", model, job, strategy, assumed, ignored, tuple(keys.unknown()))


def looks_like_torchtitan(text: str) -> bool:
    """TOML with a parallelism section, or options with dotted names of it."""
    return "[parallelism]" in text or "--parallelism." in text or "--training.local_batch_size" in text


def looks_like_toml(text: str) -> bool:
    """Whether a text has sections."""
    return any(line.strip().startswith("[") for line in text.splitlines())


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"torchtitan settings are not valid TOML: {str(error)[:200]}; correct it") from None


def _gathered(values: dict[str, Any]) -> dict[str, Any]:
    """Degrees where 0.1 and 0.2 have them; before, they stood in `training` and `experimental`."""
    parallel = values.get("parallelism", {})
    if not isinstance(parallel, dict):
        return values
    moved, rest = dict(parallel), dict(values)
    for section in ("training", "experimental"):
        inside = values.get(section)
        if not isinstance(inside, dict):
            continue
        degrees = {key: value for key, value in inside.items() if "parallel_" in key and key not in moved}
        rest[section] = {key: value for key, value in inside.items() if key not in degrees}
        moved |= degrees
    if "data_parallel_degree" in moved:
        moved.setdefault("data_parallel_shard_degree", moved.pop("data_parallel_degree"))
    return rest | {"parallelism": moved}


def _command_line(text: str) -> dict[str, Any]:
    """`--section.key value` pairs and the activation-checkpoint subcommand as nested mappings."""
    words = shell_words(text)
    found: dict[str, Any] = {}
    for index, word in enumerate(words):
        if word.startswith(AC_COMMANDS):
            found.setdefault("activation_checkpoint", {})["mode"] = word.removeprefix(AC_COMMANDS)
        if not word.startswith("--") or "." not in word:
            continue
        name, equals, value = word.removeprefix("--").partition("=")
        following = words[index + 1] if index + 1 < len(words) else "--"
        bare = following.startswith(("--", AC_COMMANDS))
        section, _, key = name.replace("-", "_").partition(".")
        off = key.startswith("no_")
        value = value if equals else ("false" if off else "true") if bare else following
        found.setdefault(section, {})[key.removeprefix("no_") if off and bare else key] = value
    stages = _STAGES.search(text)
    if stages and MODULE in words:
        found.setdefault("parallelism", {})[MODULE] = stages[1]
    return found


def _axes(parallel: Keys, devices: int) -> dict[str, Any]:
    """Degrees; -1 shards what is left (ParallelDims)."""
    names = {
        "tp": "tensor_parallel_degree",
        "cp": "context_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "ep": "expert_parallel_degree",
        "dp_replicate": "data_parallel_replicate_degree",
    }
    found: dict[str, Any] = {axis: parallel.whole(key, 1, low=1) for axis, key in names.items()}
    parallel.ignore("expert_tensor_parallel_degree", "context_parallel_load_balancer", "enable_loss_parallel")
    inner = found["tp"] * found["cp"] * found["pp"] * found["dp_replicate"]
    shard = -1
    if parallel.has("data_parallel_shard_degree") and parallel.text("data_parallel_shard_degree") != "-1":
        shard = parallel.whole("data_parallel_shard_degree", low=1)
    if shard == -1:
        shard = max(devices // inner, 1)
    if inner * shard != devices:
        whole = nearest_worlds(devices, inner, "dp_replicate x cp x tp x pp")
        raise BadInput(
            f"dp_replicate {found['dp_replicate']} x dp_shard {shard} x cp {found['cp']} x tp {found['tp']} x pp "
            f"{found['pp']} = {inner * shard} is not the cluster's {devices} devices; use "
            + (f"dp_shard {devices // inner}" if devices % inner == 0 else ", or ".join(whole)),
            pointer="/parallelism",
        )
    if found["cp"] > 1:
        found["cp_kind"] = ROTATIONS.get(
            parallel.text("context_parallel_rotate_method", "allgather"), "allgather"
        )
    found["dp_shard"] = shard
    found["dp"] = shard * found["dp_replicate"]
    if found["tp"] > 1 and not parallel.flag("enable_sequence_parallel", True):
        found["sp"] = False
    return found


def _pipeline(parallel: Keys, pp: int, num_layers: int) -> dict[str, Any]:
    """Schedule and stages."""
    name = parallel.text("pipeline_parallel_schedule", "1F1B")
    less = tuple(parallel.whole(f"pipeline_parallel_{end}_stage_less_layers", 1) for end in ("first", "last"))
    each = parallel.whole("pipeline_parallel_layers_per_stage", 0)
    parallel.ignore(
        "pipeline_parallel_split_points",
        "pipeline_parallel_schedule_csv",
        "pipeline_parallel_expert_parallel_overlap",
    )
    if pp == 1:
        return {}
    schedules = {title.lower(): key for key, title in SCHEDULES.items()}
    schedule = schedules.get(name.lower())
    if schedule is None:
        raise BadInput(
            f"pipeline_parallel_schedule {name:.40} is not modelled; use {', '.join(SCHEDULES.values())}",
            pointer="/parallelism/pipeline_parallel_schedule",
        )
    named = parallel.text(MODULE, "")
    if named:
        sizes = tuple(int(size) for size in named.split("+"))
        if sum(sizes) != num_layers or len(sizes) % pp or 0 in sizes[1:-1]:
            raise BadInput(
                f"STAGES={named:.100} are {sum(sizes)} layers in {len(sizes)} stages, the model has {num_layers} for "
                f"pp {pp}; give every stage but the first and the last at least one"
            )
        return {"schedule": schedule, "vpp": len(sizes) // pp, "stages": sizes}
    stages = number_of_stages(num_layers, pp, schedule, each, (less[0], less[1]))
    if schedule in SINGLE and stages != pp:
        raise BadInput(
            f"{name} takes one stage a rank, {stages} stages on pp {pp} are given; use Interleaved1F1B"
        )
    return {"schedule": schedule, "vpp": stages // pp, "stages": split(num_layers, stages, less[0], less[1])}


def _batches(parallel: Keys, training: Keys, beside: Beside, sizes: tuple[int, int, int]) -> tuple[int, int]:
    """Global batch and micro-batch: with a pipeline the local batch is cut, without one it is the micro-batch."""
    dp, pp, local = sizes
    micro = parallel.whole("pipeline_parallel_microbatch_size", 1, low=1)
    if pp > 1 and local % micro:
        raise BadInput(
            f"training.local_batch_size {local} is not divisible by "
            f"pipeline_parallel_microbatch_size {micro}; change one",
            pointer="/training/local_batch_size",
        )
    stated = beside.job.get("global_batch")
    batch = stated if isinstance(stated, int) else 0
    if not batch and training.has("global_batch_size") and training.text("global_batch_size") != "-1":
        batch = training.whole("global_batch_size", low=1)
    batch = batch or local * dp
    if batch % (local * dp):
        low = batch // (local * dp) * local * dp
        near = " or ".join(str(n) for n in (low, low + local * dp) if n)
        raise BadInput(
            f"training.global_batch_size {batch} is not a multiple of local_batch_size {local} x {dp} "
            f"data-parallel ranks; use {near}",
            pointer="/training/global_batch_size",
        )
    return batch, micro if pp > 1 else local


def _zero(parallel: Keys, pp: int) -> int:
    policy = parallel.text("fsdp_reshard_after_forward", "default")
    return {"always": 3, "never": 2}.get(policy, 2 if pp > 1 else 3)


def _recompute(keys: Keys) -> str:
    """none, selective by operator, or full; selective by every n-th layer is not modelled."""
    section = keys.inside("activation_checkpoint")
    section.ignore(
        "per_op_sac_force_recompute_mm_shapes_by_fqns",
        "early_stop",
        "preserve_rng_state",
        "determinism_check",
        "debug",
    )
    mode = section.text("mode", "selective").replace("-", "_")
    option = section.text("selective_ac_option", "op")
    if mode == "selective" and option != "op":
        raise BadInput(
            f"activation_checkpoint.selective_ac_option {option:.20}: every n-th layer is not modelled; use op",
            pointer="/activation_checkpoint/selective_ac_option",
        )
    if mode not in ("none", "selective", "full"):
        raise BadInput(f"activation_checkpoint.mode {mode:.40} is not modelled; use none, selective or full")
    return mode


def _offload(training: Keys) -> str:
    return "parameters" if training.flag("enable_cpu_offload") else "none"


def _precision(keys: Keys) -> Precision:
    """bf16 parameters are the default; converters turn linears to float8 or mxfp8."""
    words = " ".join(keys.inside("model").words("converters"))
    section = keys.inside("quantize")
    for name in ("linear", "grouped_mm"):
        section.inside(name).ignore("float8", "mx")
    older = keys.inside("float8")  # 0.1 and 0.2; with converters since 0.1
    older.ignore(
        "enable_fsdp_float8_all_gather", "precompute_float8_dynamic_scale_for_fsdp", "filter_fqns", "recipe_name",
        "force_recompute_fp8_weight_in_bwd", "scaling_type_input", "scaling_type_weight", "emulate",
        "moe_fqns_prototype",
    )  # fmt: skip
    if "float8" in words or older.flag("enable_float8_linear"):
        return Precision.FP8
    if "mx" in words:
        return Precision.MXFP8
    return (
        Precision.FP32
        if keys.inside("training").text("mixed_precision_param") == "float32"
        else Precision.BF16
    )


def _optimizer(keys: Keys) -> Optimizer:
    section = keys.inside("optimizer")
    section.ignore("lr", "eps", "beta1", "beta2", "weight_decay", "implementation", "early_step_in_backward")
    name = section.text("param_groups.0.optimizer_name", section.text("name", "AdamW"))
    if name.lower() not in OPTIMIZERS:
        raise BadInput(f"optimizer.name {name:.40} is not modelled; use Adam, AdamW or Muon")
    return OPTIMIZERS[name.lower()]


def _options(keys: Keys, parallel: Keys, training: Keys) -> dict[str, Any]:
    """Typed options of the `torchtitan` engine."""
    compiled = keys.inside("compile")
    compiled.ignore("components", "backend", "fullgraph")
    found: dict[str, Any] = {}
    if compiled.flag("enable") or training.flag("compile"):  # 0.1 has it in training
        found["engine.compile"] = True
    if parallel.flag("enable_async_tensor_parallel") or compiled.flag("enable_async_tensor_parallel"):
        found["engine.async_tp"] = True
    policy = parallel.text("fsdp_reshard_after_forward", "default")
    if policy != "default":
        found["engine.reshard_after_forward"] = policy
    if training.text("mixed_precision_reduce", "float32") != "float32":
        found["engine.grad_dtype"] = "bf16"
    return found
