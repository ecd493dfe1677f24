"""What ranks do in the tests of weights: load a folder into a layout, its first loss and logits, write it back."""

import json
import resource
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.data import Batch
from planner.executor.failures import WeightsFailed
from planner.executor.model.prediction import with_predictions
from planner.executor.step import Trainer
from planner.executor.weights.loading import Loaded, load_weights
from planner.executor.weights.saving import Saved, save_weights
from tests.planner.executor.orders import tiny_order

SEQUENCE = 16


@dataclass(frozen=True, slots=True)
class Work:
    """A folder for a layout, and the global batch; `options` are those of a run."""

    folder: Path
    strategy: str
    ids: Tensor
    targets: Tensor
    engine: str = "torch"
    options: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Done:
    """What a rank saw: what all read, what was written, the loss of the global batch, and the logits of its data rank
    where it has them."""

    loaded: Loaded | None
    saved: Saved | None
    loss: float
    data_rank: int
    logits: Tensor | None


def first_steps(rank: int, world: int, works: list[Work]) -> list[Done]:
    """One piece of work after the other."""
    return [first_step(world, work) for work in works]


def first_step(world: int, work: Work) -> Done:
    """Load, take the first step's forward and backward, write back where the options say so."""
    config = json.loads((work.folder / "config.json").read_text())
    options = {"weights": str(work.folder), "dropout": False, **work.options}
    order = tiny_order(
        work.strategy, devices=world, engine=work.engine, config=config, job=work.job, **options
    )
    trainer = Trainer(order, torch.device("cpu"))
    loaded = load_weights(order, trainer)
    seen: list[Tensor] = []
    total = trainer._loss

    def loss(output: Tensor, wanted: Tensor) -> Tensor:
        seen.append(output.detach().clone())
        return total(output, wanted)

    trainer._loss = loss
    at, size = trainer.meshes.at, trainer.meshes.data_size
    data_rank, count = at.replicate * order.strategy.dp_shard + at.shard, order.num_micro_batches
    own = slice(data_rank * len(work.ids) // size, (data_rank + 1) * len(work.ids) // size)
    batches = list(map(Batch, work.ids[own].chunk(count), work.targets[own].chunk(count)))
    batches = [with_predictions(batch, order.predictions) for batch in batches]
    own_loss = trainer.forward_backward(batches, int((work.targets != -100).sum()))
    # Where layers beside the model's own have a loss, it is made inside and no logits come out.
    logits = _gathered(trainer, torch.cat(seen)) if seen and seen[0].dim() else None
    saved = save_weights(order, trainer) if order.options.save_weights else None
    return Done(loaded, saved, trainer._shared_loss(own_loss), data_rank, logits)


def _gathered(trainer: Trainer, logits: Tensor) -> Tensor:
    """All of the vocabulary."""
    group = trainer.meshes.tp_group
    parts = [torch.empty_like(logits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, logits.contiguous(), group=group)
    return torch.cat(parts, -1)


def write_without_room(rank: int, world: int, work: Work, room: int) -> tuple[str, str]:
    """Write with so many bytes a file on the last rank; the failure's kind and message."""
    if rank == world - 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    config = json.loads((work.folder / "config.json").read_text())
    options = {"weights": str(work.folder), **work.options}
    order = tiny_order(work.strategy, devices=world, config=config, **options)
    try:
        save_weights(order, Trainer(order, torch.device("cpu")))
    except WeightsFailed as failure:
        return failure.kind, str(failure)
    return "", ""


def most_held(rank: int, world: int, folder: Path, strategy: str) -> int:
    """Most anonymous memory of this process, in bytes, beyond what it had, while the model is built and filled."""
    config = json.loads((folder / "config.json").read_text())
    order = tiny_order(strategy, devices=world, engine="fsdp2", config=config, weights=str(folder))
    before, most, is_over = _anonymous_bytes(), [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.002):
            most[0] = max(most[0], _anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    load_weights(order, Trainer(order, torch.device("cpu")))
    is_over.set()
    watcher.join()
    return most[0] - before


def _anonymous_bytes() -> int:
    """Resident bytes of no file (proc_pid_status)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
