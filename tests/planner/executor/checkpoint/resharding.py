"""Writes a checkpoint under one layout and goes on under another: `difference(first, second, folder)`.

`python -m tests.planner.executor.checkpoint.resharding 20` does so for random pairs of layouts.
"""

import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from planner.executor.request import RunOrder
from tests.planner.executor.equality import JOB, MODEL, OPTIONS
from tests.planner.executor.orders import tiny_order
from tests.planner.executor.ranks import run_ranks

SAVED_AFTER: Final = 2
MORE: Final = 5


@dataclass(frozen=True)
class Layout:
    """A layout of the tests' small Llama, or of another model and job."""

    strategy: str
    devices: int
    engine: str = "torch"
    config: Mapping[str, object] = field(default_factory=lambda: MODEL)
    job: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def order(self, **options: Any) -> RunOrder:
        """The order of a run with checkpoints."""
        return tiny_order(
            self.strategy,
            devices=self.devices,
            engine=self.engine,
            config=self.config,
            job={**JOB, **self.job},
            **{
                **OPTIONS,
                "warmup_steps": 6,
                "lr": 3e-3,
                "steps": SAVED_AFTER + MORE,
                **self.options,
                **options,
            },
        )


LAYOUTS: Final = (
    Layout("", 1),
    Layout("dp=2", 2, "ddp"),
    Layout("dp=2", 2, "parameter_server"),
    Layout("dp=2,zero=1", 2),
    Layout("dp=4,zero=1", 4),
    Layout("dp=2,zero=2", 2, "fsdp2"),
    Layout("dp=4,zero=3", 4, "fsdp2"),
    Layout("dp=4,dp_shard=2,dp_replicate=2,zero=3", 4),
    Layout("tp=2", 2),
    Layout("tp=2,sp=false,dp=2,zero=1", 4),
    Layout("tp=4", 4),
    Layout("tp=2,dp=2,zero=3", 4),
    Layout("pp=2,stages=3+2", 2),
    Layout("pp=2,dp=2,zero=1,stages=2+3", 4),
    Layout("pp=2,vpp=2,schedule=interleaved,stages=2+1+1+1", 2),
    Layout("pp=2,vpp=2,schedule=zb-v,stages=1+2+1+1,tp=2", 4),
    Layout("pp=4,stages=2+1+1+1", 4),
    Layout("pp=2,tp=2,stages=3+2", 4),
)


def losses_of(layout: Layout, folder: Path, resume: str) -> list[float]:
    """Losses of a run: from its beginning, writing a checkpoint; or from the checkpoint."""
    options = {"checkpoint": str(folder), "every": SAVED_AFTER, "keep": 0, "resume": resume}
    order = layout.order(**options)
    results = run_ranks(train_rank, layout.devices, order.to_json(), timeout_s=180.0)
    losses: list[float] = results[0]
    return losses


def train_rank(rank: int, world: int, document: dict[str, Any]) -> list[float]:
    """One rank: the losses of its steps; a run from its beginning writes one checkpoint."""
    from planner.executor.checkpoint.reader import resume
    from planner.executor.checkpoint.writer import CheckpointWriter
    from planner.executor.request import order_of_document
    from planner.executor.step import Trainer

    order = order_of_document(document)
    trainer = Trainer(order, torch.device("cpu"))
    start = resume(order, trainer, attempt=0)
    writer = CheckpointWriter(order, trainer, lambda written: None)
    losses = []
    for step in range(start.step + 1, order.options.steps + 1):
        losses.append(trainer.train_step().loss)
        if step == SAVED_AFTER:
            writer.save(step)
    writer.wait()
    return losses


def difference(first: Layout, second: Layout, folder: Path) -> float:
    """Largest difference of a loss after the checkpoint between going on as before and as the second layout."""
    whole = losses_of(first, folder, "")
    rest = losses_of(second, folder, str(folder))
    assert len(rest) == MORE, rest
    return max(abs(own - other) for own, other in zip(whole[SAVED_AFTER:], rest, strict=True))


def random_pair(seed: int) -> tuple[Layout, Layout]:
    """Two different layouts."""
    first, second = random.Random(seed).sample(LAYOUTS, 2)
    return first, second


def main() -> None:
    """As many pairs as the command line says."""
    for seed in range(int(sys.argv[1])):
        first, second = random_pair(seed)
        with tempfile.TemporaryDirectory() as folder:
            found = difference(first, second, Path(folder))
        sys.stdout.write(
            f"{first.engine}:{first.strategy} -> {second.engine}:{second.strategy}: {found:.1e}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
