"""The formats by name: who reads settings, who writes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cost_models.errors import BadInput
from cost_models.specs.pools import groups_text
from cost_models.suggest import did_you_mean
from planner.formats.accelerate.read import looks_like_accelerate, read_accelerate
from planner.formats.accelerate.write import write_accelerate
from planner.formats.deepspeed.read import looks_like_deepspeed, read_deepspeed
from planner.formats.deepspeed.write import write_deepspeed
from planner.formats.export import Export, PlannedRun
from planner.formats.fsdp2.read import looks_like_fsdp2, read_fsdp2
from planner.formats.fsdp2.write import write_fsdp2
from planner.formats.megatron.read import looks_like_megatron, read_megatron_text
from planner.formats.megatron.write import write_megatron
from planner.formats.recipes.read import looks_like_bridge, looks_like_nemo, read_bridge, read_nemo
from planner.formats.recipes.write import write_bridge, write_nemo
from planner.formats.settings import Beside, Settings, one_sentence
from planner.formats.torchtitan.read import looks_like_torchtitan, read_torchtitan
from planner.formats.torchtitan.write import write_torchtitan
from planner.formats.tuning.read import (
    looks_like_axolotl,
    looks_like_llamafactory,
    read_axolotl,
    read_llamafactory,
)

MOST_CHARACTERS: Final = 2_000_000
"""Far more than any settings have."""


@dataclass(frozen=True, slots=True)
class Format:
    """One framework's settings: `read` takes their text and what stands beside them, `write` a planned run."""

    title: str
    recognise: Callable[[str], bool]
    """Whether a text looks like these settings; asked in the order below."""
    read: Callable[[str, Beside], Settings] | None = None
    write: Callable[[PlannedRun], Export] | None = None


FORMATS: Final[Mapping[str, Format]] = {
    "fsdp2": Format("a Python module of FSDP2 and DTensor", looks_like_fsdp2, read_fsdp2, write_fsdp2),
    "torchtitan": Format(
        "torchtitan options (0.3) and TOML (0.1, 0.2)",
        looks_like_torchtitan,
        read_torchtitan,
        write_torchtitan,
    ),
    "megatron": Format(
        "Megatron-LM arguments (core 0.12 to 0.19)", looks_like_megatron, read_megatron_text, write_megatron
    ),
    "bridge": Format("Megatron-Bridge recipe overrides (0.6)", looks_like_bridge, read_bridge, write_bridge),
    "nemo": Format("NeMo 2 recipe (2.5)", looks_like_nemo, read_nemo, write_nemo),
    "deepspeed": Format(
        "DeepSpeed JSON (0.14 to 0.19) and the Hugging Face Trainer",
        looks_like_deepspeed,
        read_deepspeed,
        write_deepspeed,
    ),
    "accelerate": Format(
        "Accelerate YAML (1.15): FSDP2, DDP, DeepSpeed and Megatron inside it",
        looks_like_accelerate,
        read_accelerate,
        write_accelerate,
    ),
    "llamafactory": Format("LLaMA-Factory YAML (0.9)", looks_like_llamafactory, read_llamafactory),
    "axolotl": Format("axolotl YAML (0.21)", looks_like_axolotl, read_axolotl),
}


def readable() -> tuple[str, ...]:
    """Formats that can be read."""
    return tuple(name for name, each in FORMATS.items() if each.read)


def writable() -> tuple[str, ...]:
    """Formats that can be written."""
    return tuple(name for name, each in FORMATS.items() if each.write)


def find_out(text: str, name: str) -> str:
    """The format that a text looks like; raises BadInput where none recognises it."""
    for form, each in FORMATS.items():
        if each.read and each.recognise(text):
            return form
    raise BadInput(
        f"settings {name[:100]!r} look like none of {', '.join(readable())}; say which with --format",
        pointer="/format",
    )


def read_settings(text: str, name: str, beside: Beside) -> Settings:
    """Settings of a format; raises BadInput for an unknown format or settings that cannot be read."""
    reader = _format(name, readable()).read
    if reader is None:
        raise _unknown(name, readable())
    if len(text) > MOST_CHARACTERS:
        raise BadInput(f"settings of {len(text):,} characters; give at most {MOST_CHARACTERS:,}")
    with one_sentence(name):
        return reader(text, beside)


def write_settings(run: PlannedRun, name: str) -> Export:
    """Files of a format; raises BadInput for an unknown format or a run that it cannot say."""
    writer = _format(name, writable()).write
    if writer is None:
        raise _unknown(name, writable())
    export = writer(run)
    return replace(export, losses=(*export.losses, *_placement_losses(run)))


def _placement_losses(run: PlannedRun) -> tuple[str, ...]:
    """No framework's settings say which kind of device a pipeline rank stands on: the order of hosts does."""
    groups = run.strategy.stage_groups
    if not groups:
        return ()
    return (
        f"groups={groups_text(groups)}: the settings do not say which device group a pipeline rank lies on; give the "
        "launcher its hosts in this order",
    )


def _format(name: str, known: tuple[str, ...]) -> Format:
    if name not in FORMATS:
        raise _unknown(name, known)
    return FORMATS[name]


def _unknown(name: str, known: tuple[str, ...]) -> BadInput:
    hint = did_you_mean(name, known)
    return BadInput(f"format {name!r:.60} is not known here; {hint}use {', '.join(known)}", pointer="/format")
