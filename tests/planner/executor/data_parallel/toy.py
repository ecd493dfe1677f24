"""A small language model of plain parameters, cut and sharded by hand, and a training loop around it.

Sizes divide by nothing that is sharded over data ranks (hidden 10, vocabulary 23), so shards are uneven.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional

from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.strategy import Strategy
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.records import describe
from planner.executor.data_parallel.wrap import wrap
from planner.executor.mesh import Meshes, build_meshes
from planner.executor.model.tensor_parallel import (
    TensorParallel,
    enter,
    leave,
    local,
    mark_partial,
    sequence_slice,
)
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import Target
from planner.executor.precision import compute_dtype

HIDDEN, FFN, VOCABULARY, SEQUENCE, BATCH, BLOCKS = 10, 14, 23, 6, 16, 4
IGNORED = -100


@dataclass(frozen=True)
class Case:
    """One layout to train in."""

    strategy: Strategy
    engine: str = "torch"
    micro_batches: int = 2
    tied: bool = False
    max_norm: float | None = 0.5
    steps: int = 5
    bucket_bytes: int = 1000
    precision: Precision = Precision.FP32
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(lr=1e-2))


def make(name: str, shape: tuple[int, ...], tp: TensorParallel, shard: int | None = None) -> nn.Parameter:
    """A parameter whose values depend on its name; replicated ones are partial under sequence parallelism."""
    generator = torch.Generator().manual_seed(
        sum(ord(letter) * 31**i for i, letter in enumerate(name)) % 2**40
    )
    whole = torch.randn(shape, generator=generator) * 0.3
    if tp.size == 1:
        return nn.Parameter(whole)
    part = whole if shard is None else whole.chunk(tp.size, shard)[tp.rank].contiguous()
    assert tp.mesh is not None
    placement = Replicate() if shard is None else Shard(shard)
    parameter = nn.Parameter(DTensor.from_local(part, tp.mesh, [placement], run_check=False))
    if shard is None and tp.sequence:
        mark_partial(parameter)
    return parameter


class Embedding(nn.Module):
    def __init__(self, tp: TensorParallel, weight: nn.Parameter) -> None:
        super().__init__()
        self.tp, self.weight = tp, weight

    def forward(self, tokens: Tensor) -> Tensor:
        return sequence_slice(functional.embedding(tokens, local(self.weight)), self.tp, 1)


class Block(nn.Module):
    def __init__(self, index: int, tp: TensorParallel) -> None:
        super().__init__()
        self.tp = tp
        self.norm = make(f"{index}.norm", (HIDDEN,), tp)
        self.gain = make(f"{index}.gain", (1,), tp)  # fewer elements than ranks: most shards are empty
        self.up = make(f"{index}.up", (FFN, HIDDEN), tp, shard=0)
        self.down = make(f"{index}.down", (HIDDEN, FFN), tp, shard=1)

    def forward(self, x: Tensor) -> Tensor:
        inside = enter(
            functional.rms_norm(x, (HIDDEN,)) * local(self.norm) * (1.0 + local(self.gain)), self.tp
        )
        hidden = functional.silu(functional.linear(inside, local(self.up)))
        return x + leave(functional.linear(hidden, local(self.down)), self.tp)


class Head(nn.Module):
    def __init__(self, tp: TensorParallel, weight: nn.Parameter) -> None:
        super().__init__()
        self.norm = make("head.norm", (HIDDEN,), tp)
        self.weight = weight

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(functional.rms_norm(x, (HIDDEN,)) * local(self.norm), local(self.weight))


class Chunk(nn.Module):
    """Layers [start, stop) of: embedding, blocks, head."""

    def __init__(self, start: int, stop: int, tp: TensorParallel, tied: bool) -> None:
        super().__init__()
        table = make("table", (VOCABULARY, HIDDEN), tp)
        head = table if tied else make("head", (VOCABULARY, HIDDEN), tp)
        if tied:
            table.tie_name = "table"  # type: ignore[attr-defined]
        last = BLOCKS + 1
        self.layers = nn.ModuleDict()
        for index in range(start, stop):
            layer = Block(index, tp)
            if index in (0, last):
                layer = Embedding(tp, table) if index == 0 else Head(tp, head)
            self.layers[str(index)] = layer

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def loss_sum(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def batch_of(step: int) -> tuple[Tensor, Tensor, int]:
    """Tokens and targets of the global batch, some ignored, and how many are not."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets = torch.randint(VOCABULARY, (BATCH, SEQUENCE), generator=generator)
    targets[torch.rand(BATCH, SEQUENCE, generator=generator) < 0.2] = IGNORED
    return tokens, targets, int((targets != IGNORED).sum())


@dataclass
class Worker:
    """One rank's part of the training."""

    case: Case
    meshes: Meshes
    data: DataParallel

    def step(self, step: int) -> float:
        """Forward and backward of all micro-batches; returns the global loss."""
        tokens, targets, valid = batch_of(step)
        count, at = self.meshes.data_size, self.meshes.data_rank
        mine = [each.chunk(count)[at].chunk(self.case.micro_batches) for each in (tokens, targets)]
        self.data.start_step(self.case.micro_batches)
        total = torch.zeros(())
        for index, (inputs, labels) in enumerate(zip(*mine, strict=True)):
            with self.data.last_micro_batch(index == self.case.micro_batches - 1):
                total += self._micro_batch(inputs, labels, valid)
        self.data.finish_gradients()
        strategy = self.case.strategy
        groups = [self.meshes.data_group, self.meshes.pp_group]
        for group in [*groups, self.meshes.tp_group] if strategy.sp else groups:
            dist.all_reduce(total, group=group)
        return total.item()

    def _micro_batch(self, inputs: Tensor, labels: Tensor, valid: int) -> Tensor:
        """Blocking pipeline of one micro-batch: receive, forward, send, receive, backward, send."""
        stage, stages = self.meshes.at.pp, self.case.strategy.pp
        ranks = dist.get_process_group_ranks(self.meshes.pp_group)
        x = inputs
        if stage > 0:
            x = torch.empty(
                len(inputs), SEQUENCE // (self.case.strategy.tp if self.case.strategy.sp else 1), HIDDEN
            )
            dist.recv(x, ranks[stage - 1])
            x.requires_grad_()
        out = x
        for module in self.data.modules:
            out = module(out)
        if stage < stages - 1:
            dist.send(out.detach(), ranks[stage + 1])
            gradient = torch.empty_like(out)
            dist.recv(gradient, ranks[stage + 1])
            out.backward(gradient)
            loss = torch.zeros(())
        else:
            labels = sequence_slice(labels, _tensor_parallel(self.case.strategy, self.meshes), 1)
            loss = loss_sum(out, labels) / valid
            loss.backward()
        if stage > 0:
            assert x.grad is not None
            dist.send(x.grad, ranks[stage - 1])
        return loss.detach()


def _tensor_parallel(strategy: Strategy, meshes: Meshes) -> TensorParallel:
    return TensorParallel(meshes.tp, strategy.tp, meshes.at.tp, strategy.sp)


def start(case: Case) -> Worker:
    """This rank's chunks, wrapped."""
    strategy = case.strategy
    meshes = build_meshes(strategy, "cpu")
    tp = _tensor_parallel(strategy, meshes)
    count = strategy.pp * strategy.vpp
    bounds = [round(index * (BLOCKS + 2) / count) for index in range(count + 1)]
    chunks = [
        Chunk(bounds[stage], bounds[stage + 1], tp, case.tied)
        for stage in (meshes.at.pp + index * strategy.pp for index in range(strategy.vpp))
    ]
    settings = DataParallelSettings(
        engine=case.engine, precision=case.precision, optimizer=case.optimizer, bucket_bytes=case.bucket_bytes
    )
    return Worker(case, meshes, wrap(chunks, strategy, meshes, settings))


class Reference:
    """The same training in one process, by torch alone."""

    def __init__(self, case: Case, make_optimizer: Any = None) -> None:
        self.case = case
        self.model = Chunk(0, BLOCKS + 2, TensorParallel(), case.tied)
        settings = case.optimizer
        self.optimizer = (
            make_optimizer(self.model)
            if make_optimizer
            else torch.optim.AdamW(
                self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay
            )
        )

    def step(self, step: int) -> float:
        tokens, targets, valid = batch_of(step)
        self.optimizer.zero_grad()
        loss = loss_sum(self.model(tokens), targets) / valid
        loss.backward()
        return loss.item()

    def update(self) -> float:
        largest = self.case.max_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), largest).item()
        self.optimizer.step()
        return norm


def _whole_optimizer(case: Case) -> Any:
    """Makes this project's optimizer of a model in one process."""

    class Whole:
        def apply(self, function: Any, local: Tensor) -> Tensor:
            return function(local)  # type: ignore[no-any-return]

    def make_optimizer(model: nn.Module) -> Any:
        records, parameters = describe([model])
        targets = [
            Target(p, Whole() if r.is_matrix else None) for r, p in zip(records, parameters, strict=True)
        ]
        return build_optimizer(targets, case.optimizer, compute_dtype(case.precision))

    return make_optimizer


def relative(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Largest over tensors of max|found - expected| / max|expected|."""
    return max(
        ((tensor.float() - expected[name]).abs().max() / expected[name].abs().max()).item()
        for name, tensor in found.items()
    )


def errors(rank: int, world: int, case: Case) -> dict[str, float]:
    """Largest relative differences from one process, over all steps: gradients, norm, loss; parameters at the end.

    The one process is torch alone for AdamW, else this project's own optimizer on whole tensors.
    """
    worker = start(case)
    own = case.optimizer.kind is not Optimizer.ADAMW
    reference = Reference(case, _whole_optimizer(case)) if own else Reference(case)
    worst = dict.fromkeys(("gradients", "norm", "loss", "parameters"), 0.0)

    def note(key: str, value: float) -> None:
        worst[key] = max(worst[key], value)

    for step in range(case.steps):
        loss, expected = worker.step(step), reference.step(step)
        note("loss", abs(loss / expected - 1.0))
        gradients = {name: p.grad for name, p in reference.model.named_parameters() if p.grad is not None}
        named = dict(reference.model.named_parameters(remove_duplicate=False))
        gradients |= {name: named[name].grad for name in named}  # tied copies under both names
        if step == 0:
            note("gradients", relative(worker.data.full_gradients(), gradients))
        norm, expected = worker.data.step(case.max_norm), reference.update()
        note("norm", abs(norm / expected - 1.0))
    named = dict(reference.model.named_parameters(remove_duplicate=False))
    note("parameters", relative(worker.data.full_parameters(), {k: v.detach() for k, v in named.items()}))
    return worst
