"""Adapters as the peft library writes them: `adapter_model.safetensors` beside `adapter_config.json`."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from cost_models.errors import BadInput
from planner.executor.adapters.attach import adapters_of
from planner.executor.adapters.names import Entry, entries_of
from planner.executor.checkpoint.pieces import boxes_of_held
from planner.executor.failures import WeightsFailed
from planner.executor.request import RunOrder
from planner.executor.step import Trainer

TENSORS_FILE: Final = "adapter_model.safetensors"
CONFIG_FILE: Final = "adapter_config.json"
REFUSED: Final = ("use_dora", "use_rslora", "lora_bias", "alora_invocation_tokens", "modules_to_save")
"""Settings of the library that change what an adapter computes, or train more than adapters."""


def order_entries(order: RunOrder) -> tuple[Entry, ...]:
    """The adapters of an order by the library's names; raises BadInput where some have none."""
    return entries_of(order.situation.model, order.situation.job.trainable.targets)


def check_adapters(order: RunOrder) -> None:
    """Raise BadInput for folders of adapters that cannot be written, or do not hold this job's."""
    options = order.options
    if options.adapters or options.adapters_from:
        entries = order_entries(order)
        if options.adapters_from:
            read_adapters(order, entries)
    if options.adapters:
        folder = Path(options.adapters)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ".writable").touch()
            (folder / ".writable").unlink()
        except OSError as error:
            raise BadInput(
                f"adapters folder {str(folder)[:200]!r} cannot be written ({error.strerror}); give another --adapters"
            ) from None


def adapter_config(order: RunOrder, entries: tuple[Entry, ...]) -> dict[str, Any]:
    """The library's config of these adapters. Fused linears have the sum of their parts' ranks, and alphas to match."""
    rank, scale = order.situation.job.trainable.rank, adapters_of(order).scale
    fused = {entry.inside: len(entry.members) for entry in entries if entry.total_rank != rank}
    plain, of_experts = (
        {entry.inside for entry in entries if bool(entry.experts) is each} for each in (False, True)
    )
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": order.options.weights or order.situation.model.name,
        "r": rank,
        "lora_alpha": _whole(scale * rank),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": order.situation.model.family == "gpt2",
        "target_modules": sorted(plain),
        "target_parameters": sorted(of_experts) or None,
        "rank_pattern": {re.escape(name): rank * parts for name, parts in sorted(fused.items())},
        "alpha_pattern": {
            re.escape(name): _whole(scale * rank * parts) for name, parts in sorted(fused.items())
        },
        "use_rslora": False,
        "use_dora": False,
        "init_lora_weights": True,
        "inference_mode": True,
        "modules_to_save": None,
        "revision": None,
    }


@torch.no_grad()
def save_adapters(order: RunOrder, trainer: Trainer) -> str:
    """Write the folder that the options name, on the first rank; collective. Raises WeightsFailed on all ranks."""
    entries = order_entries(order)
    own = trainer.data_parallel.full_parameters()
    at = trainer.meshes.at
    mine = (
        {name: tensor.cpu() for name, tensor in own.items()}
        if at.tp == 0 and trainer.meshes.data_rank == 0
        else {}
    )
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.gather_object(mine, everywhere if dist.get_rank() == 0 else None)
    problem: list[OSError | None] = [None]
    if dist.get_rank() == 0:
        whole: dict[str, Tensor] = {name: tensor for part in everywhere for name, tensor in part.items()}
        tensors = {key: tensor for entry in entries for key, tensor in entry.joined(whole).items()}
        problem = [write_adapters(Path(order.options.adapters), tensors, adapter_config(order, entries))]
    dist.broadcast_object_list(problem)
    if problem[0] is not None:
        raise WeightsFailed(order.options.adapters, problem[0], 0)
    return order.options.adapters


def write_adapters(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> OSError | None:
    """Write both files, each whole or not at all; what went wrong."""
    partial = folder / ".partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_file(dict(tensors), str(partial / TENSORS_FILE), metadata={"format": "pt"})
        (partial / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for name in (TENSORS_FILE, CONFIG_FILE):
            (partial / name).replace(folder / name)
        partial.rmdir()
    except OSError as error:
        return error
    return None


@torch.no_grad()
def load_adapters(order: RunOrder, trainer: Trainer) -> None:
    """Begin with the adapters of the folder that the options name: each rank takes what it holds; collective."""
    if not order.options.adapters_from:
        return
    entries = order_entries(order)
    tensors = read_adapters(order, entries)
    whole: dict[str, Tensor] = {}
    for entry in entries:
        whole |= entry.parted(*(tensors[key] for key in entry.keys))
    # Prediction layers' adapters have no names in the library: they begin as drawn.
    for held in (each for each in trainer.data_parallel.held() if each.record.name in whole):
        for piece in boxes_of_held(held.record.name, held, held.values):
            box = tuple(
                slice(start, start + size)
                for start, size in zip(piece.offsets, piece.tensor.shape, strict=True)
            )
            piece.tensor.copy_(whole[held.record.name][box])
    trainer.data_parallel.publish()


def read_adapters(order: RunOrder, entries: tuple[Entry, ...]) -> dict[str, Tensor]:
    """The tensors of the folder that the options name; raises BadInput where they are not this job's adapters."""
    folder = Path(order.options.adapters_from)
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = load_file(str(folder / TENSORS_FILE))
    except Exception as error:  # whatever a broken file makes its reader raise
        what = " ".join(str(error).split())[:150]
        raise BadInput(
            f"{str(folder)[:200]!r} holds no adapters ({what}); give a folder with {CONFIG_FILE} and {TENSORS_FILE}"
        ) from None
    _check_config(config, order)
    expected = {key for entry in entries for key in entry.keys}
    missing, other = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
    if missing or other:
        kind, names = ("lack", missing) if missing else ("have also", other)
        raise BadInput(
            f"the adapters of {str(folder)[:150]!r} {kind} {len(names)} of the job's tensors, first {names[0]:.120}; "
            "give job.trainable the targets that they were trained with"
        )
    return tensors


def _check_config(config: Any, order: RunOrder) -> None:
    """Raise BadInput where the settings are not a plain LoRA of the job's rank and scale."""
    rank, scale = order.situation.job.trainable.rank, adapters_of(order).scale
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise BadInput(f"{CONFIG_FILE} is no LoRA adapter's; give one with peft_type LORA")
    used = [name for name in REFUSED if config.get(name)]
    if used:
        raise BadInput(f"the adapters use {used[0]}, which this executor does not; give plain LoRA adapters")
    own_rank, alpha = config.get("r"), config.get("lora_alpha")
    if own_rank != rank:
        raise BadInput(
            f"the adapters have rank {own_rank}, and the job {rank}; use job.trainable=lora:r={own_rank}"
        )
    if not isinstance(alpha, int | float) or abs(alpha / rank - scale) > 1e-6 * scale:
        raise BadInput(
            f"the adapters were trained with lora_alpha {alpha}, and this run has {scale * rank:g}; give --lora-alpha "
            f"{alpha}"
        )


def _whole(number: float) -> int | float:
    return int(number) if number == int(number) else number
