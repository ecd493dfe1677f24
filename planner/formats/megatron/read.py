"""Megatron-LM settings as they lie in files: a command line, a shell script, or YAML -> Settings."""

from typing import Final

from planner.formats.megatron import PROGRAMS, arguments_of_text, read_megatron
from planner.formats.settings import Beside, Settings

SCRIPTS: Final = {
    "pretrain_gpt": "gpt",
    "pretrain_bert": "bert",
    "pretrain_t5": "t5",
    "pretrain_mamba": "hybrid",
    "pretrain_hybrid": "hybrid",
}


def read_megatron_text(text: str, beside: Beside) -> Settings:
    """Settings of a script; the program is the one that it starts, gpt where it names none."""
    program = next((kind for script, kind in SCRIPTS.items() if script in text), PROGRAMS[0])
    return read_megatron(
        arguments_of_text(text),
        beside.devices,
        program=program,
        name=beside.model.name if beside.model else "megatron",
        version=beside.engine_version,
    )


def looks_like_megatron(text: str) -> bool:
    """Whether a text names degrees or sizes as Megatron-LM's arguments do."""
    return any(name in text for name in ("tensor-model-parallel-size", "--micro-batch-size", "--num-layers"))
