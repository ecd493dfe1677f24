"""A small model cut into stages, one step of a pipeline over it, and the same step in one process."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from cost_models.schedule import ScheduleName, operations, stage_of
from cost_models.specs.job import Optimizer
from planner.executor.data_parallel.base import DataParallelSettings
from planner.executor.data_parallel.wrap import wrap
from planner.executor.mesh import build_meshes
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.pipeline.runner import PipelineRunner, PipelineShape
from planner.executor.weight_gradients import CanDefer, linear
from tests.planner.executor.strategies import strategy

HIDDEN, VOCABULARY, SEQUENCE, MICRO_BATCH, STEPS = 8, 13, 5, 2, 2
SGD = OptimizerSettings(Optimizer.SGD, lr=0.1, weight_decay=0.0, momentum=0.9)


@dataclass(frozen=True)
class Case:
    """One schedule over stages of these many blocks, on one pipeline or on several with their data."""

    schedule: str
    blocks: tuple[int, ...]
    m: int
    p: int = 2
    dp_shard: int = 1
    dp_replicate: int = 1
    zero: int = 0
    again: bool = False

    @property
    def v(self) -> int:
        return len(self.blocks) // self.p

    @property
    def world(self) -> int:
        return self.p * self.dp_shard * self.dp_replicate

    @property
    def point(self) -> tuple[ScheduleName, int, int, int]:
        return ScheduleName(self.schedule), self.p, self.v, self.m


class Dense(CanDefer):
    def __init__(self, name: str, width: int, out: int, biased: bool = True) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(sum(name.encode()))
        self.weight = nn.Parameter(torch.randn((out, width), generator=generator) * 0.3)
        self.bias = nn.Parameter(torch.randn(out, generator=generator) * 0.3) if biased else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias, self.weight_gradients)


class Block(nn.Module):
    def __init__(self, index: int, again: bool) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = Dense(f"up {index}", HIDDEN, 3 * HIDDEN)
        self.down = Dense(f"down {index}", 3 * HIDDEN, HIDDEN)
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self._run, x, use_reentrant=False) if self.again else self._run(x)
        return found

    def _run(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        values = torch.randn((VOCABULARY, HIDDEN), generator=torch.Generator().manual_seed(1))
        self.weight = nn.Parameter(values)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.embedding(tokens, self.weight)


class Chunk(nn.Module):
    """The blocks of one stage, with the table before the first and the head after the last."""

    def __init__(self, case: Case, stages: range) -> None:
        super().__init__()
        first = sum(case.blocks[: stages.start])
        last = first + sum(case.blocks[stages.start : stages.stop])
        layers: dict[str, nn.Module] = {str(i): Block(i, case.again) for i in range(first, last)}
        if stages.start == 0:
            layers = {"table": Table()} | layers
        if stages.stop == len(case.blocks):
            layers["head"] = Dense("head", HIDDEN, VOCABULARY, biased=False)
        self.layers = nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def loss(output: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(output.flatten(0, 1), targets.flatten(), reduction="sum") / 100


def batch(case: Case, number: int) -> tuple[Tensor, Tensor]:
    """Tokens and targets of the global batch, shape (ranks of data, m, micro-batch, sequence)."""
    shape = (case.dp_shard * case.dp_replicate, case.m, MICRO_BATCH, SEQUENCE)
    generator = torch.Generator().manual_seed(number)
    return tuple(torch.randint(VOCABULARY, shape, generator=generator) for _ in range(2))  # type: ignore[return-value]


def reference(case: Case) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of every step and the gradients of the last one, in one process."""
    model = Chunk(case, range(len(case.blocks)))
    optimizer = torch.optim.SGD(model.parameters(), lr=SGD.lr, momentum=SGD.momentum)
    losses = []
    for number in range(STEPS):
        tokens, targets = (part.flatten(0, 2) for part in batch(case, number))
        optimizer.zero_grad()
        found = loss(model(tokens), targets)
        found.backward()
        losses.append(found.item())
        gradients = {
            name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
        }
        optimizer.step()
    return losses, gradients


@dataclass(frozen=True)
class Found:
    """What one rank found: largest errors, and whether it ran its list."""

    gradient: float
    loss: float
    ran_the_list: bool


def run_case(case: Case) -> Found:
    """Train in the case's layout and hold it against one process."""
    layout = strategy(
        pp=case.p,
        vpp=case.v,
        dp_shard=case.dp_shard,
        dp_replicate=case.dp_replicate,
        zero=case.zero,
        schedule=ScheduleName(case.schedule),
    )
    meshes = build_meshes(layout, "cpu")
    rank = meshes.at.pp
    held = [stage_of(ScheduleName(case.schedule), case.p, rank, chunk) for chunk in range(case.v)]
    chunks = [Chunk(case, range(stage, stage + 1)) for stage in held]
    data = wrap(chunks, layout, meshes, DataParallelSettings("torch", optimizer=SGD, bucket_bytes=1000))
    shape = PipelineShape(*case.point, rank)
    runner = PipelineRunner(shape, data, meshes.pp_group, torch.device("cpu"))
    losses, gradients = reference(case)
    largest = 0.0
    for number in range(STEPS):
        tokens, targets = (part[meshes.data_rank] for part in batch(case, number))
        data.start_step(case.m)
        found = torch.stack([*runner.run(list(tokens), list(targets), loss), torch.zeros(())]).sum()
        data.finish_gradients()
        dist.all_reduce(found)
        largest = max(largest, abs(found.item() - losses[number]) / losses[number])
        own = data.full_gradients()
        data.step(None)
    wrong = [(own[name] - gradients[name]).abs().max() / gradients[name].abs().max() for name in own]
    return Found(float(max(wrong)), largest, runner.executed == list(operations(*case.point)[rank]))


def run_cases(rank: int, world: int, cases: list[Case]) -> list[Found]:
    """`run_case` of every case, in one group of processes."""
    return [run_case(case) for case in cases]
