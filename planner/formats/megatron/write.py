"""A planned run -> a launch script of Megatron-LM, held against what its own arguments read back as."""

from dataclasses import replace
from typing import Final, cast

from cost_models.engines.options import MegatronOptions
from cost_models.errors import BadInput
from cost_models.specs.model import Role
from cost_models.specs.strategy import StrategyRequest
from planner.formats.differences import knob_losses, model_differences, option_losses
from planner.formats.export import Export, PlannedRun, header, torchrun_lines
from planner.formats.megatron import read_megatron
from planner.formats.megatron.tokens import Raw
from planner.formats.megatron.write_job import job_arguments
from planner.formats.megatron.write_model import model_arguments, program_of
from planner.formats.megatron.write_strategy import strategy_arguments, with_the_loss
from planner.situation import Situation, situate

SCRIPT: Final = "train.sh"
VERSION: Final = "0.19"
LISTS: Final = ("recompute-modules", "offload-modules", "hierarchical-context-parallel-sizes")
"""Arguments of several words."""
PROGRAMS: Final = {"gpt": "pretrain_gpt.py", "hybrid": "pretrain_mamba.py"}


def write_megatron(run: PlannedRun) -> Export:
    """The script, with its losses; raises BadInput or IllegalStrategy naming what Megatron-LM cannot do."""
    if run.job.engine != "megatron":
        raise BadInput(
            f"the plan is for engine {run.job.engine}, whose memory and legality are not Megatron-LM's; plan again "
            "with --engine megatron, or export to that framework"
        )
    run = with_the_loss(run)
    groups = grouped_arguments(run)
    flat = {name: value for group in groups.values() for name, value in group.items()}
    losses = read_back_losses(run, flat)
    version = run.job.engine_version or VERSION
    return Export("megatron", version, {SCRIPT: _script(run, groups, version)}, SCRIPT, losses)


def grouped_arguments(run: PlannedRun) -> dict[str, Raw]:
    """Arguments by what they are about: MODEL, PARALLEL, TRAINING."""
    options = cast(MegatronOptions, run.situation.engine.options)
    model = model_arguments(run.model)
    if not run.job.options.train_mtp:
        model.pop("mtp-num-layers", None)
    parallel = strategy_arguments(run.strategy, run.model, run.job, options)
    return {"MODEL_ARGS": model, "PARALLEL_ARGS": parallel, "TRAINING_ARGS": job_arguments(run)}


def read_back(run: PlannedRun, flat: Raw) -> tuple[Situation, StrategyRequest]:
    """The situation and strategy that the arguments mean."""
    devices = run.situation.cluster.num_devices
    settings = read_megatron(
        flat, devices, program=program_of(run.model), name=run.model.name, version=run.job.engine_version
    )
    return situate(settings.model, run.situation.cluster, settings.job), settings.strategy


def read_back_losses(run: PlannedRun, flat: Raw) -> tuple[str, ...]:
    """What the framework will do otherwise; raises BadInput where it would train another number of parameters."""
    again, stated = read_back(run, flat)
    ours = run.situation if run.job.options.train_mtp else _without_predictions(run.situation)
    differences = model_differences(ours.model, again.model)
    mine, theirs = ours.counts.parameters, again.counts.parameters
    if mine != theirs:
        first = differences[0] if differences else "the sizes differ"
        raise BadInput(
            f"Megatron-LM arguments build {theirs:,} parameters of {run.model.name}'s {mine:,}: {first}; export to "
            "fsdp2 or accelerate, which run the model's own class"
        )
    knobs = knob_losses(run.strategy, again, stated)
    return (*differences, *knobs, *option_losses(run.situation, again, run.strategy))


def _without_predictions(situation: Situation) -> Situation:
    """The same model without multi-token prediction, which is exported only where it is trained."""
    model = situation.model
    layers = tuple(layer for layer in model.layers if layer.role is not Role.MTP)
    return replace(situation, model=model.model_copy(update={"layers": layers}))


def _script(run: PlannedRun, groups: dict[str, Raw], version: str) -> str:
    """The whole script; the caller's own words come last and win."""
    lines = ["#!/usr/bin/env bash", *header(run, "Megatron-LM", version), "set -euo pipefail", ""]
    lines += [f"export {name}={value}" for name, value in environment(run).items()]
    lines += ["", ': "${MEGATRON_PATH:=.}"  # a checkout of Megatron-LM, core ' + version, ""]
    for title, arguments in groups.items():
        lines += [f"{title}=(", *(f"  {_words(name, value)}" for name, value in arguments.items()), ")", ""]
    lines += [
        "# Synthetic data, so that the first run needs none; NullTokenizer adds one entry to the vocabulary.",
        "DATA_ARGS=(",
        "  --mock-data",
        "  --tokenizer-type NullTokenizer",
        ")",
        "",
        "# Learning rate, length of the run, checkpoints: change them freely, they move neither memory nor speed.",
        "RUN_ARGS=(",
        "  --lr 3.0e-4",
        "  --train-iters 50",
        "  --eval-iters 0",
        "  --log-interval 1",
        ")",
        "",
        *torchrun_lines(run),
        f'  "${{MEGATRON_PATH}}/{PROGRAMS[program_of(run.model)]}" \\',
        '  "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${DATA_ARGS[@]}" "${RUN_ARGS[@]}" "$@"',
        "",
    ]
    return "\n".join(lines)


def environment(run: PlannedRun) -> dict[str, str]:
    """Variables that the run needs: kernels of one queue before Blackwell, allocator segments where planned so."""
    found: dict[str, str] = {}
    options = cast(MegatronOptions, run.situation.engine.options)
    splits = run.strategy.tp > 1 or run.strategy.cp > 1
    if splits and not options.megatron_fsdp and not _is_blackwell(run):
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if options.expandable_segments:
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return found


def _is_blackwell(run: PlannedRun) -> bool:
    return run.situation.cluster.device.architecture == "blackwell"


def _words(name: str, value: str) -> str:
    """An argument as a shell line."""
    if value == "true":
        return f"--{name}"
    quoted = f'"{value}"' if set(value) & set("|*()[] ") and name not in LISTS else value
    return f"--{name} {quoted}"
