"""Steps through this package against loops written by hand on torch's own classes, on the same model and data."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.wrap import wrap
from planner.executor.mesh import build_meshes
from planner.executor.optimizers.settings import OptimizerSettings
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]

HIDDEN, LAYERS, VOCABULARY, ROWS = 256, 4, 2048, 256
REPEATS, WARM_UP = 30, 3
MAX_RATIO = 1.03


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = [
            nn.Embedding(VOCABULARY, HIDDEN),
            *(Layer() for _ in range(LAYERS)),
            nn.Linear(HIDDEN, VOCABULARY),
        ]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def batch(rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rank)
    inputs, targets = torch.randint(VOCABULARY, (2, ROWS), generator=generator)
    return inputs, targets


def by_hand(rank: int, world: int, zero: int) -> Callable[[], float]:
    """One step of a plain loop: DDP, DDP with a sharded optimizer, or FSDP2 by layer."""
    model: nn.Module = Model()
    if zero >= 2:
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer, reshard_after_forward=zero == 3)
        fully_shard(model, reshard_after_forward=zero == 3)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    kind, options = torch.optim.AdamW, {"lr": 1e-3, "fused": True}
    optimizer: torch.optim.Optimizer
    if zero == 1:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # warns of its own deprecations

        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=kind, **options)
    else:
        optimizer = kind(model.parameters(), **options)
    inputs, targets = batch(rank)

    def step() -> float:
        optimizer.zero_grad(set_to_none=zero >= 2)
        functional.cross_entropy(model(inputs), targets).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        norm = norm.full_tensor() if zero >= 2 else norm  # type: ignore[operator]
        optimizer.step()
        return norm.item()

    return step


def by_package(rank: int, world: int, engine: str, zero: int) -> Callable[[], float]:
    """One step of the same work through `wrap`."""
    plan = strategy(dp_shard=world, zero=zero)
    settings = DataParallelSettings(engine=engine, optimizer=OptimizerSettings(lr=1e-3))
    data: DataParallel = wrap([Model()], plan, build_meshes(plan, "cpu"), settings)
    inputs, targets = batch(rank)

    def step() -> float:
        data.start_step(1)
        with data.last_micro_batch(True):
            loss = functional.cross_entropy(data.modules[0](inputs), targets, reduction="sum")
            (loss / (world * ROWS)).backward()
        data.finish_gradients()
        return data.step(1.0)

    return step


def compare(rank: int, world: int, engine: str, zero: int) -> dict[str, float]:
    """Ratios of both loops' steps, which alternate between barriers, and how far their last norms differ.

    Processor seconds count what this rank computes and copies, so that neighbours on the machine disturb them less.
    """
    steps = {
        "hand": by_hand(rank, world, zero),
        "package": by_package(rank, world, engine, zero),
    }
    wall: dict[str, list[float]] = {name: [] for name in steps}
    processor: dict[str, list[float]] = {name: [] for name in steps}
    norms = dict.fromkeys(steps, 0.0)
    for repeat in range(REPEATS + WARM_UP):
        for name in sorted(steps, reverse=repeat % 2 == 1):
            dist.barrier()
            start = (time.perf_counter(), time.process_time())
            norms[name] = steps[name]()
            dist.barrier()
            if repeat >= WARM_UP:
                wall[name].append(time.perf_counter() - start[0])
                processor[name].append(time.process_time() - start[1])
    return {
        "wall_ratio": _ratio(wall),
        "processor_ratio": _ratio(processor),
        "hand_s": median(wall["hand"]),
        "norms": abs(norms["package"] / norms["hand"] - 1.0),
    }


def _ratio(seconds: dict[str, list[float]]) -> float:
    """Median over repeats of package / hand, each pair taken side by side."""
    return median(mine / hand for mine, hand in zip(seconds["package"], seconds["hand"], strict=True))


@pytest.mark.bench
@pytest.mark.parametrize(
    ("engine", "zero"), [("ddp", 0), ("torch", 0), ("torch", 1), ("fsdp2", 2), ("fsdp2", 3)]
)
def test_overhead_over_a_loop_by_hand(
    run_ranks: RunRanks, record_property: Callable[[str, object], None], engine: str, zero: int
) -> None:
    found = run_ranks(compare, 2, engine, zero, timeout_s=120.0)[0]
    for name, value in found.items():
        record_property(name, value)
    assert found["norms"] < 1e-3
    assert min(found["wall_ratio"], found["processor_ratio"]) < MAX_RATIO, found
