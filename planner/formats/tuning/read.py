"""Fine-tuning YAML -> job and strategy. Model and cluster stand beside it; a DeepSpeed file is known by its name.

LLaMA-Factory: src/llamafactory/hparams (finetuning_args, model_args, data_args) over TrainingArguments.
axolotl: src/axolotl/utils/schemas/config.py.
"""

from dataclasses import dataclass
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import StrategyRequest
from planner.formats.keys import Keys
from planner.formats.settings import Beside, Settings, batch_of, beside_job, model_beside
from planner.formats.tuning.adapters import (
    FUSED_LOSSES,
    kind_of,
    refuse_unmodelled,
    stage_of_file,
    trainable_text,
)
from planner.strict_yaml import parse_yaml


@dataclass(frozen=True, slots=True)
class Words:
    """How a front end calls what both have, with its default."""

    name: str
    micro: tuple[str, int]
    accumulation: str
    seq_len: tuple[str, int]
    rank: str
    targets: str
    checkpoint: str
    optimizer: str
    marks: tuple[str, ...]


FACTORY: Final = Words(
    "llamafactory", ("per_device_train_batch_size", 8), "gradient_accumulation_steps", ("cutoff_len", 2048),
    "lora_rank", "lora_target", "disable_gradient_checkpointing", "optim", ("finetuning_type", "cutoff_len"),
)  # fmt: skip
AXOLOTL: Final = Words(
    "axolotl", ("micro_batch_size", 1), "gradient_accumulation_steps", ("sequence_len", 512), "lora_r",
    "lora_target_modules", "gradient_checkpointing", "optimizer", ("base_model", "sequence_len"),
)  # fmt: skip

OPTIMIZERS: Final = {
    "adamw_torch": Optimizer.ADAMW,
    "adamw_torch_fused": Optimizer.ADAMW,
    "adamw_hf": Optimizer.ADAMW,
    "adamw_apex_fused": Optimizer.ADAMW,
    "paged_adamw": Optimizer.ADAMW,
    "adamw_8bit": Optimizer.ADAM8BIT,
    "adamw_torch_8bit": Optimizer.ADAM8BIT,
    "adamw_bnb_8bit": Optimizer.ADAM8BIT,
    "paged_adamw_8bit": Optimizer.ADAM8BIT,
    "paged_adamw_32bit": Optimizer.ADAMW,
    "adafactor": Optimizer.ADAFACTOR,
    "sgd": Optimizer.SGD,
    "muon": Optimizer.MUON,
}


def read_llamafactory(text: str, beside: Beside) -> Settings:
    """LLaMA-Factory YAML; raises BadInput naming the key."""
    return _read(text, beside, FACTORY)


def read_axolotl(text: str, beside: Beside) -> Settings:
    """Axolotl YAML; raises BadInput naming the key."""
    return _read(text, beside, AXOLOTL)


def looks_like_llamafactory(text: str) -> bool:
    """YAML with a finetuning_type."""
    return _has_lines(text, FACTORY.marks[0], "stage") and "model_name_or_path" in text


def looks_like_axolotl(text: str) -> bool:
    """YAML with base_model and sequence_len."""
    return _has_lines(text, *AXOLOTL.marks)


def _has_lines(text: str, *keys: str) -> bool:
    lines = text.splitlines()
    return all(any(line.startswith(f"{key}:") for line in lines) for key in keys)


def _read(text: str, beside: Beside, words: Words) -> Settings:
    keys = Keys(parse_yaml(text, f"of {words.name}", "settings"))
    model = model_beside(beside, f"{words.name} names a model, not its sizes")
    assumed: list[str] = []
    sizes = _axes(keys, words, beside.devices)
    dp = beside.devices // (sizes["tp"] * sizes["cp"])
    micro, batch = batch_of(
        (keys.whole(words.micro[0], words.micro[1], low=1), keys.whole(words.accumulation, 1, low=1), 0),
        (words.micro[0], words.accumulation, "global batch"),
        dp,
        beside,
        assumed,
    )
    engine, values = _sharding(keys, sizes, dp, assumed)
    refuse_unmodelled(keys)
    options = {"engine.modules": "transformers", **_options(keys, words)}
    job = beside_job(
        beside,
        engine=engine,
        global_batch=batch,
        precision=_precision(keys),
        optimizer=_optimizer(keys, words),
        options=options,
    )
    seq_len = keys.whole(words.seq_len[0], words.seq_len[1], low=1)
    job = job.model_copy(update={"seq_len": job.seq_len or seq_len})
    recompute = _recompute(keys, words, assumed)
    strategy = StrategyRequest(**sizes, **values, dp=dp, mbs=micro, recompute=recompute)
    return Settings(words.name, model, job, strategy, tuple(assumed), tuple(_rest(keys)), ())


def _rest(keys: Keys) -> list[str]:
    """Data, logging and rates have hundreds of names in these front ends: the rest is listed as ignored."""
    return list(keys.unknown_names())


def _axes(keys: Keys, words: Words, devices: int) -> dict[str, Any]:
    """Axolotl's degrees; LLaMA-Factory has none of its own."""
    if words is FACTORY:
        return {"tp": 1, "cp": 1}
    tp, cp = keys.whole("tensor_parallel_size", 1, low=1), keys.whole("context_parallel_size", 1, low=1)
    cp = max(cp, keys.whole("sequence_parallel_degree", 1, low=1))
    if devices % (tp * cp):
        raise BadInput(
            f"{devices} devices are not divisible by tensor {tp} x context {cp}; change one of them"
        )
    found: dict[str, Any] = {
        "tp": tp,
        "cp": cp,
        **({"sp": False} if tp > 1 else {}),
        **({"cp_kind": "ring"} if cp > 1 else {}),
    }
    replicas, shards = (keys.whole(f"dp_{name}_size", 0) for name in ("replicate", "shard"))
    if replicas or shards:
        dp = devices // (tp * cp)
        replicas = replicas or dp // max(shards, 1)
        shards = shards or dp // max(replicas, 1)
        if replicas * shards != dp:
            raise BadInput(
                f"dp_replicate_size {replicas} x dp_shard_size {shards} x tensor {tp} x context {cp} is not the "
                f"cluster's {devices} devices; change one of them",
                pointer="/dp_shard_size",
            )
        found |= {"dp_replicate": replicas, "dp_shard": shards}
    return found


def _sharding(keys: Keys, sizes: dict[str, Any], dp: int, assumed: list[str]) -> tuple[str, dict[str, Any]]:
    """DeepSpeed by the stage in its file's name, FSDP by its version, DDP."""
    deepspeed = keys.text("deepspeed")
    if deepspeed:
        stage = stage_of_file(deepspeed)
        if stage is None:
            raise BadInput(
                f"deepspeed {deepspeed[:80]} does not say its ZeRO stage; evaluate that file with --format deepspeed"
            )
        assumed.append(f"deepspeed.zero_optimization.stage={stage}")
        if sizes.get("cp_kind") == "ring":
            sizes["cp_kind"] = "ulysses"  # DeepSpeed's own; ring attention beside it is not modelled
            assumed.append("cp_kind=ulysses")
        offload = "optimizer" if "offload" in deepspeed else "none"
        parameters = offload != "none" and stage == 3
        return "deepspeed", {"zero": stage, "offload": "parameters" if parameters else offload}
    if keys.has("fsdp") or keys.has("fsdp_config") or keys.has("fsdp_version"):
        return _fsdp(keys, sizes, dp)
    return "ddp", {"zero": 0}


def _fsdp(keys: Keys, sizes: dict[str, Any], dp: int) -> tuple[str, dict[str, Any]]:
    """FSDP's version, resharding and offload, in the Trainer's words (`full_shard auto_wrap offload`) and in keys."""
    section = keys.inside("fsdp_config")
    said = {word.lower() for words in keys.words("fsdp") for word in words.replace(",", " ").split()}
    strategy = _either(section, "sharding_strategy").upper()
    said |= {strategy.lower()} if strategy else set()
    if "no_shard" in said:
        return "ddp", {"zero": 0}
    version = max(
        keys.whole("fsdp_version", 1), section.whole("fsdp_version", 1), section.whole("version", 1)
    )
    resharding = _either(section, "reshard_after_forward", "true").lower() not in (
        "false",
        "no",
        "shard_grad_op",
    )
    shards = resharding and not said & {"shard_grad_op", "hybrid_shard_zero2"}
    offloads = "offload" in said or _either(section, "offload_params", "false").lower() in ("true", "yes")
    machines = keys.whole("num_machines", 1, low=1)
    if said & {"hybrid_shard", "hybrid_shard_zero2"} and machines > 1 and dp % machines == 0:
        sizes |= {"dp_replicate": machines, "dp_shard": dp // machines}
    offload = "parameters" if offloads else "none"
    return f"fsdp{min(version, 2)}", {"zero": 3 if shards else 2, "offload": offload}


def _either(section: Keys, key: str, default: str = "") -> str:
    """A key of fsdp_config with or without its prefix."""
    return section.text(key, section.text(f"fsdp_{key}", default))


def _precision(keys: Keys) -> Precision:
    bf16, fp16 = keys.text("bf16", "false").lower(), keys.text("fp16", "false").lower()
    if keys.is_auto("bf16") or bf16 in ("true", "full", "yes"):
        return Precision.BF16
    pure = keys.flag("pure_bf16")
    return Precision.BF16 if pure else Precision.FP16 if fp16 == "true" else Precision.FP32


def _optimizer(keys: Keys, words: Words) -> Optimizer:
    name = keys.text(words.optimizer, "adamw_torch").lower()
    if name not in OPTIMIZERS:
        raise BadInput(
            f"{words.optimizer} {name:.40} is not modelled; use {', '.join(OPTIMIZERS)}",
            pointer=f"/{words.optimizer}",
        )
    return OPTIMIZERS[name]


def _options(keys: Keys, words: Words) -> dict[str, Any]:
    """Adapters, quantised bases, attention, kind of training."""
    found: dict[str, Any] = {"job.kind": kind_of(keys.text("stage", keys.text("rl", "sft")))}
    adapter = keys.text("finetuning_type", "lora") if words is FACTORY else keys.text("adapter", "full")
    quantised = keys.flag("load_in_4bit") or keys.text("quantization_bit") == "4" or adapter == "qlora"
    if adapter in ("lora", "qlora"):
        names = keys.words(words.targets)
        targets = tuple(each for name in names for each in name.split(","))
        if keys.flag("lora_target_linear"):
            targets = ()
        rank = keys.whole(words.rank, 8, low=1)
        found["job.trainable"] = trainable_text("qlora" if quantised else "lora", rank, targets)
    elif adapter not in ("full", "none"):
        raise BadInput(f"training kind {adapter:.40} is not modelled; use full, lora or qlora")
    if keys.flag("pure_bf16"):
        found["engine.param_dtype"] = "bf16"
    if any(keys.flag(name) for name in FUSED_LOSSES):
        found["engine.fused_cross_entropy"] = True
    flash = keys.text("flash_attn", "auto") not in ("disabled",) and not keys.flag("eager_attention")
    return found | ({} if flash else {"engine.attention": "unfused"})


def _recompute(keys: Keys, words: Words, assumed: list[str]) -> str:
    """LLaMA-Factory checkpoints unless told not to; axolotl does where told to."""
    if words is FACTORY:
        off = keys.flag(words.checkpoint)
        if not keys.has(words.checkpoint):
            assumed.append("disable_gradient_checkpointing=false")
        return "none" if off else "full"
    section = keys.inside("fsdp_config")
    if _either(section, "activation_checkpointing", "false").lower() in ("true", "yes"):
        return "full"
    return "full" if keys.text(words.checkpoint, "false").lower() not in ("false", "no") else "none"
