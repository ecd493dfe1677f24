"""Megatron-LM arguments, read into model, job and strategy (megatron/training/arguments.py, core 0.12 to 0.19)."""

from planner.formats.megatron.arguments import Arguments
from planner.formats.megatron.job import read_job
from planner.formats.megatron.model import PROGRAMS, read_model
from planner.formats.megatron.strategy import degrees, read_strategy
from planner.formats.megatron.tokens import Raw, arguments_of_mapping, arguments_of_text
from planner.formats.settings import Settings

__all__ = ["PROGRAMS", "Raw", "arguments_of_mapping", "arguments_of_text", "read_megatron"]


def read_megatron(
    raw: Raw, devices: int, *, program: str = "gpt", name: str = "megatron", version: str = ""
) -> Settings:
    """Settings of a run on so many devices; raises BadInput or InvalidModel naming the argument and what to change."""
    arguments = Arguments(raw)
    model = read_model(arguments, program, name)
    strategy = read_strategy(arguments, model.num_blocks, devices)
    axes = degrees(arguments)
    job = read_job(arguments, devices // (axes["tp"] * axes["pp"] * axes["cp"]), program, version)
    return Settings(
        framework="megatron",
        model=model,
        job=job,
        strategy=strategy,
        assumed=arguments.assumed,
        ignored=arguments.ignored,
        unknown=arguments.unknown_hints(),
    )
