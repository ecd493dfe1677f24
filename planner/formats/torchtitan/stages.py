"""How torchtitan cuts a model into stages (torchtitan/distributed/pipeline_parallel.py)."""

import math
from typing import Final

from cost_models.errors import BadInput

SCHEDULES: Final = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
SINGLE: Final = ("1f1b", "gpipe")
"""Schedules of one stage a rank; the others have two where nothing else is said."""

MOST_LESS: Final = 8
MODULE: Final = "planned_stages"
"""The module that is written beside the script for stages that the options do not cut."""

PROGRAM: Final = '''"""An entry of torchtitan's registry ($MODULE, $CONFIG) with stages of $STAGES layers."""

import os
from importlib import import_module


def planned():
    """The entry's configuration, its modules named for every stage."""
    registry = import_module(f"torchtitan.models.{os.environ['MODULE']}.config_registry")
    config = getattr(registry, os.environ["CONFIG"])()
    parts, first = [], 0
    for size in map(int, os.environ["STAGES"].split("+")):
        parts.append([f"layers.{layer}" for layer in range(first, first + size)])
        first += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    config.parallelism.module_fqns_per_model_part = parts
    return config
'''


def split(num_layers: int, num_stages: int, first_less: int = 1, last_less: int = 1) -> tuple[int, ...]:
    """Blocks of each stage: embedding and head count as so many blocks, the first stages take what is left over.

    Raises BadInput where a stage would hold less than none.
    """
    each, extra = divmod(num_layers + first_less + last_less, num_stages)
    sizes = [each + (stage < extra) for stage in range(num_stages)]
    sizes[0] -= first_less
    sizes[-1] -= last_less
    if min(sizes) < 1:
        raise BadInput(
            f"{num_layers} layers in {num_stages} stages, {first_less} less on the first and {last_less} less on the "
            "last, leave a stage empty; use fewer stages"
        )
    return tuple(sizes)


def number_of_stages(
    num_layers: int, pp: int, schedule: str, layers_per_stage: int, less: tuple[int, int]
) -> int:
    """Stages of the whole pipeline; raises BadInput where they are no whole number a rank."""
    if not layers_per_stage:
        return pp * (1 if schedule in SINGLE else 2)
    stages = math.ceil((num_layers + sum(less)) / layers_per_stage)
    if stages % pp:
        raise BadInput(
            f"{num_layers} layers at {layers_per_stage} a stage are {stages} stages, not divisible by pp {pp}; change "
            "pipeline_parallel_layers_per_stage"
        )
    return stages


def options_of(stages: tuple[int, ...], pp: int, schedule: str) -> dict[str, int] | None:
    """Options that cut so; None where none do."""
    layers = sum(stages)
    for first_less in range(MOST_LESS):
        for last_less in range(MOST_LESS):
            try:
                if split(layers, len(stages), first_less, last_less) != stages:
                    continue
            except BadInput:
                continue
            found = {
                "pipeline_parallel_first_stage_less_layers": first_less,
                "pipeline_parallel_last_stage_less_layers": last_less,
            }
            usual = pp * (1 if schedule in SINGLE else 2)
            if len(stages) != usual:
                each = math.ceil((layers + first_less + last_less) / len(stages))
                if math.ceil((layers + first_less + last_less) / each) != len(stages):
                    continue
                found["pipeline_parallel_layers_per_stage"] = each
            return found
    return None
