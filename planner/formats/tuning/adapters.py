"""Adapters of both front ends in this planner's words, and what their DeepSpeed and FSDP files are called."""

import re
from typing import Final

from cost_models.errors import BadInput

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
