"""A planned run -> overrides of a Megatron-Bridge recipe, or a Python script of a NeMo 2 recipe."""

from typing import Final

from cost_models.engines.options import MegatronOptions
from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from cost_models.specs.trainable import parse_trainable
from planner.formats.differences import read_back_losses
from planner.formats.export import Export, PlannedRun, header, torchrun_lines
from planner.formats.megatron.tokens import Raw
from planner.formats.megatron.write_job import job_arguments
from planner.formats.megatron.write_strategy import strategy_arguments, with_the_loss
from planner.formats.recipes.fields import NAMING, PLACES, PRECISIONS, RECIPE_DEFAULTS, Place
from planner.formats.recipes.read import read_bridge, read_nemo

Value = str | list[str]

BRIDGE_VERSION = "0.6"
NEMO_VERSION = "2.5"
ELSEWHERE = ("max-position-embeddings", "bf16", "fp16", "fp8-format", "fp8-recipe", "ckpt-format")
"""Arguments that a recipe says in other words: by its model, by a named precision."""

REMEDIES: Final = {"use-tp-pp-dp-mapping": "plan again with --pin order=tp-cp-ep-dp-pp"}
"""What to do about a flag that follows from a knob of the plan."""


def write_bridge(run: PlannedRun) -> Export:
    """A launch script of Bridge's recipe runner with every field of the plan as an override."""
    run = with_the_loss(run)
    fields = fields_of(run, "bridge")
    lines = [
        "#!/usr/bin/env bash",
        *header(run, "Megatron-Bridge", BRIDGE_VERSION),
        "set -euo pipefail",
        "",
        ': "${BRIDGE_PATH:=.}"  # a checkout of Megatron-Bridge',
        ': "${RECIPE:?set RECIPE to a recipe of this model, such as llama31_70b_pretrain_config}"',
        "",
        *torchrun_lines(run),
        '  "${BRIDGE_PATH}/scripts/training/run_recipe.py" --recipe "${RECIPE}" \\',
        *(f"  {field}={_shell(value)} \\" for field, value in fields.items()),
        '  "$@"',
        "",
    ]
    text = "\n".join(lines)
    losses = read_back_losses(run, lambda beside: read_bridge(text, beside))
    return Export("bridge", BRIDGE_VERSION, {"train.sh": text}, "train.sh", losses)


def write_nemo(run: PlannedRun) -> Export:
    """A Python script that takes NeMo's recipe of the model and sets every field of the plan."""
    run = with_the_loss(run)
    fields = fields_of(run, "nemo")
    nodes, each = run.nodes
    precision = fields.pop("trainer.plugins")
    text = "\n".join(
        [
            *header(run, "NeMo", NEMO_VERSION),
            "import os",
            "from importlib import import_module",
            "",
            "import nemo_run as run",
            f"from nemo.collections.llm.recipes.precision.mixed_precision import {precision}",
            "",
            "# RECIPE names a module of nemo.collections.llm.recipes, such as llama31_70b.",
            'module = import_module("nemo.collections.llm.recipes." + os.environ["RECIPE"])',
            f"sizes = dict(num_nodes={nodes}, num_gpus_per_node={each})",
            'recipe = module.pretrain_recipe(name="planned", dir="output", **sizes)',
            f"recipe.trainer.plugins = {precision}()",
            *(f"recipe.{field} = {_python(value)}" for field, value in fields.items()),
            "",
            'if __name__ == "__main__":',
            f'    run.run(recipe, executor=run.LocalExecutor(ntasks_per_node={each}, launcher="torchrun"))',
            "",
        ]
    )
    losses = read_back_losses(run, lambda beside: read_nemo(text, beside))
    return Export("nemo", NEMO_VERSION, {"train.py": text}, "train.py", losses)


def fields_of(run: PlannedRun, framework: str) -> dict[str, Value]:
    """Every field that the plan rests on, with its value as Megatron-LM's arguments write it; lists as lists."""
    options = run.situation.engine.options
    if not isinstance(options, MegatronOptions):
        raise BadInput(
            f"the plan is for engine {run.job.engine}; recipes run Megatron-Core, plan again with --engine megatron"
        )
    raw = strategy_arguments(run.strategy, run.model, run.job, options)
    raw |= _job_arguments(run)
    for name in ("hidden-dropout", "attention-dropout"):
        raw.setdefault(name, "0.1")  # Megatron-LM's default, which recipes do not have
    for name, usual in RECIPE_DEFAULTS.items():
        if name not in raw and PLACES[name].kind == "switch" and usual == "true":
            raw[name] = "false"
    precision = _precision(run, raw)
    raw = {name: "false" for name in PRECISIONS[precision] if name not in NAMING} | raw
    found: dict[str, Value] = {}
    for name, value in raw.items():
        if name in ELSEWHERE:
            continue
        if name not in PLACES:
            remedy = REMEDIES.get(name, "leave it out of the plan")
            raise BadInput(f"--{name} {value:.60} has no field in a {framework} recipe; {remedy}")
        place = PLACES[name]
        for field in place.bridge if framework == "bridge" else place.nemo:
            found[field] = value.split() if place.kind == "words" else _flipped(value, place)
    found["mixed_precision" if framework == "bridge" else "trainer.plugins"] = precision
    trainable = parse_trainable(run.job.options.trainable)
    if trainable.kind == "lora":
        found["peft.dim"] = str(trainable.rank)
    return found


def _job_arguments(run: PlannedRun) -> Raw:
    """The job's arguments, and a switch that Megatron-LM's parser sets itself; adapters are the recipe's own field."""
    trainable = parse_trainable(run.job.options.trainable)
    if trainable.kind not in ("all", "lora"):
        raise BadInput(
            f"job.trainable={run.job.options.trainable}: recipes train all parameters or LoRA adapters"
        )
    switch: Raw = {"cpu-offloading": "true"} if run.strategy.act_offload.startswith("blocks") else {}
    return job_arguments(run, adapters=True) | switch


def _precision(run: PlannedRun, raw: Raw) -> str:
    """The name of the plan's precision."""
    wanted = {name: raw[name] for name in NAMING if name in raw}
    for name, means in PRECISIONS.items():
        if {key: value for key, value in means.items() if key in NAMING} == wanted:
            return name
    known = ", ".join(each.value for each in (Precision.BF16, Precision.FP16, Precision.FP8, Precision.MXFP8))
    raise BadInput(f"precision {run.job.precision.value} is not among the recipes' named ones; use {known}")


def _flipped(value: str, place: Place) -> str:
    return {"true": "false", "false": "true"}[value] if place.off else value


def _shell(value: Value) -> str:
    """A value as an override: lists in brackets, what a shell would read quoted."""
    if isinstance(value, list):
        return f"'[{','.join(value)}]'"
    return f"'{value}'" if set(value) & set("|*()") else value


def _python(value: Value) -> str:
    """A value as Python writes it."""
    if isinstance(value, list):
        return str(value)
    if value in ("true", "false"):
        return value.capitalize()
    try:
        float(value)
    except ValueError:
        return repr(value)
    return value
