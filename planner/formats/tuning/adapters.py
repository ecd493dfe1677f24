"""Adapters of both front ends in this planner's words, and what their DeepSpeed and FSDP files are called."""

import re
from typing import Final

from cost_models.errors import BadInput
from planner.formats.keys import Keys

PARTS: Final = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "proj",
    "gate_proj": "gate",
    "up_proj": "up",
    "down_proj": "down",
}
"""Linears as the transformers library names them -> as `job.trainable` does."""

FUSED_LOSSES: Final = (
    "enable_liger_kernel",
    "liger_fused_linear_cross_entropy",
    "liger_cross_entropy",
    "cut_cross_entropy",
)
"""Switches of both front ends under which logits are never whole."""

KINDS: Final = {
    "sft": "sft", "pt": "sft", "rm": "sft", "orpo": "sft", "simpo": "sft",
    "dpo": "dpo", "kto": "dpo", "ipo": "dpo",
}  # fmt: skip
"""What is trained -> `job.kind`: preferences that need a frozen reference beside the model are as dpo."""

UNMODELLED: Final = (
    "load_in_8bit", "use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_unsloth", "use_mca", "use_dora",
    "use_llama_pro", "peft_use_dora", "relora",
)  # fmt: skip
"""Switches that change the weights' types, the optimizer's states or what is trained."""

_STAGE: Final = re.compile(r"(?:zero|z|stage)[_-]?([0-3])", re.IGNORECASE)


def trainable_text(kind: str, rank: int, targets: tuple[str, ...]) -> str:
    """`job.trainable` of an adapter; no targets, or all linears, means every linear of a block."""
    named = [name for name in targets if name not in ("all", "all-linear")]
    unknown = [name for name in named if name not in PARTS]
    if unknown:
        raise BadInput(
            f"adapters beside {', '.join(unknown)[:80]} are not modelled; use {', '.join(PARTS)} or all linears"
        )
    chosen = "+".join(PARTS[name] for name in named)
    return f"{kind}:r={rank}" + (f",targets={chosen}" if chosen else "")


def stage_of_file(name: str) -> int | None:
    """ZeRO stage that a DeepSpeed file's name says, as the examples of both front ends do; None where it says none."""
    match = _STAGE.search(name.rpartition("/")[2])
    return int(match[1]) if match else None


def kind_of(name: str) -> str:
    """`job.kind` of a training stage; raises BadInput for stages that run further models, as ppo and grpo do."""
    if name.lower() not in KINDS:
        raise BadInput(f"training stage {name:.40} is not modelled; use {', '.join(KINDS)}")
    return KINDS[name.lower()]


def refuse_unmodelled(keys: Keys) -> None:
    """Raise BadInput for switches that no prediction here follows."""
    for name in UNMODELLED:
        if keys.has(name) and keys.text(name).lower() not in ("false", "no", "0"):
            raise BadInput(f"{name} is on, which is not modelled; switch it off", pointer=f"/{name}")
    bits = keys.text("quantization_bit", "4")
    if bits != "4":
        raise BadInput(
            f"quantization_bit {bits:.20} is not modelled; use 4, or leave it out",
            pointer="/quantization_bit",
        )
