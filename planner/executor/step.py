"""Trainer: the model of one rank, its data, and one optimizer step at a time.

The loss of a step is the sum of the losses of its valid targets divided by their number over the whole global batch,
whatever the layout; gradients are sums over micro-batches and data-parallel ranks.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cost_models.errors import BadInput
from cost_models.fine_tuning import without_adapters
from cost_models.schedule.placement import stage_of
from cost_models.specs.strategy import Strategy
from planner.executor.adapters.attach import adapters_of, attach
from planner.executor.data import Batch, Sampler, Source, open_source
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.wrap import wrap
from planner.executor.factory import FactoryChunk, build_factory_chunk
from planner.executor.failures import DataExhausted
from planner.executor.mesh import Meshes, build_meshes
from planner.executor.model.build import build_chunk
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.expert_parallel import Balance, ExpertParallel
from planner.executor.model.operators.routing import even_out, routers_of
from planner.executor.model.options import DRAWN, GIVEN, PROMISED, BuildOptions, ChunkCut
from planner.executor.model.prediction import with_predictions
from planner.executor.model.tensor_parallel import TensorParallel
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.pipeline.runner import Runner, build_runner
from planner.executor.precision import apply_matmul_precision
from planner.executor.request import RunOrder
from planner.executor.weights.stored import has_weights

NO_BATCH: Final = -(2**40)
"""Stands for the valid targets of a rank whose data is exhausted: more than all others have."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step on one rank; loss, gradient norm and tokens are those of all ranks."""

    step_s: float
    processor_s: float
    """Seconds of all this process's threads: what a machine with other work on it does not stretch."""
    loss: float
    grad_norm: float
    lr: float
    tokens: int


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """One step with the whole gradients of this rank's chunks, by global name."""

    loss: float
    grad_norm: float
    gradients: dict[str, Tensor]


class Trainer:
    """One rank of a running order; the default process group must have the strategy's size."""

    def __init__(self, order: RunOrder, device: torch.device, source: Source | None = None) -> None:
        job, strategy = order.situation.job, order.strategy
        apply_matmul_precision(job.precision)
        self.on_phase: Callable[[str], None] = lambda phase: None
        """Called with the name of each part of a step as it begins."""
        self._exhausted = ""
        self.order = order
        self.device = device
        self.meshes: Meshes = build_meshes(strategy, device.type, routed=order.situation.model.is_moe)
        chunks = build_chunks(order, self.meshes, device)
        self._routers = list(routers_of(*chunks).values())
        self._loss = chunks[0].loss.total
        self._has_loss = any(chunk.cut.last for chunk in chunks)
        modules: list[nn.Module] = list(chunks)
        self.data_parallel: DataParallel = wrap(modules, strategy, self.meshes, _settings(order))
        self.runner: Runner = build_runner(order, self.meshes, self.data_parallel)
        at = self.meshes.at
        part = (at.replicate * strategy.dp_shard + at.shard, strategy.dp)
        self.sampler = Sampler(
            source or open_source(order), job.global_batch, part, order.options.first_sample
        )

    def train_step(self) -> StepResult:
        """One optimizer step; `step_s` covers forward of the first to parameters ready, without loading data."""
        self.on_phase("data")
        batches, own = self._next_batches()
        lr = self.data_parallel.lr
        self.on_phase("forward and backward")
        start, processor = self._now(), time.process_time()
        loss = self.forward_backward(batches, self._num_valid(own))
        self.on_phase("optimizer")
        grad_norm = self._update()
        seconds, processor_s = self._now() - start, time.process_time() - processor
        return StepResult(seconds, processor_s, self._shared_loss(loss), grad_norm, lr, self._tokens())

    def forward_backward(self, batches: list[Batch], valid: int) -> Tensor:
        """Final gradients of a step of `valid` targets over all ranks; returns this rank's share of the loss."""
        inputs = [batch.inputs for batch in batches]
        targets = [batch.targets for batch in batches]
        self.data_parallel.start_step(len(batches))
        losses = self.runner.run(inputs, targets, self._scaled(valid))
        self.data_parallel.finish_gradients()
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.device)

    def step_with_gradients(self) -> CheckedStep:
        """One optimizer step that also gathers every gradient of this rank's chunks, for comparisons; collective."""
        batches, own = self._next_batches()
        loss = self.forward_backward(batches, self._num_valid(own))
        gradients = {name: gradient.clone() for name, gradient in self.data_parallel.full_gradients().items()}
        norm = self._update()
        return CheckedStep(self._shared_loss(loss), norm, gradients)

    def _update(self) -> float:
        """The optimizer's step, and the routers' own; returns the norm of the gradients. Collective."""
        norm = self.data_parallel.step(self.order.options.max_norm)
        rate = self.order.options.moe_bias_rate
        if rate:
            even_out(self._routers, rate, (self.meshes.data_group, self.meshes.tp_group))
        return norm

    def _scaled(self, valid: int) -> Callable[[Tensor, Tensor], Tensor]:
        def loss(output: Tensor, targets: Tensor) -> Tensor:
            total = self._loss(output, targets)
            if not total.requires_grad:
                raise BadInput(
                    "the loss depends on no parameter that is trained; give a model whose output is not detached"
                )
            return total / valid

        return loss

    def _next_batches(self) -> tuple[list[Batch], int]:
        """This rank's micro-batches of the next step on its device, and their valid targets, counted on the host."""
        try:
            whole = self.sampler.micro_batches(self.order.num_micro_batches)
        except DataExhausted as error:
            self._exhausted = str(error)
            return [], NO_BATCH
        own = [self._own_positions(batch) for batch in whole]
        valid = sum(batch.num_valid() for batch in own)
        if self.order.predictions:
            own = [self._own_positions(with_predictions(batch, self.order.predictions)) for batch in whole]
        return [self._to_device(batch) for batch in own], valid

    def _own_positions(self, batch: Batch) -> Batch:
        """The rank's share of every sequence under context parallelism."""
        strategy = self.order.strategy
        if strategy.cp == 1:
            return batch
        context = _context_parallel(strategy, self.meshes)
        positions = context.positions(batch.inputs.shape[1] // strategy.cp)
        return Batch(batch.inputs[:, positions], batch.targets[..., positions])

    def _num_valid(self, own: int) -> int:
        """Valid targets of the step over all data-parallel ranks; collective.

        Raises DataExhausted on all of them where one has none left.
        """
        total = own
        if self.meshes.data_size > 1:
            summed = torch.tensor(own, device=self.device)
            dist.all_reduce(summed, group=self.meshes.data_group)
            total = int(summed)
        if total < 0:
            said: list[str] = [""] * self.meshes.data_size
            dist.all_gather_object(said, self._exhausted, group=self.meshes.data_group)
            raise DataExhausted(next(filter(None, said)))
        return max(total, 1)

    def _shared_loss(self, own: Tensor) -> float:
        """The loss of the global batch on every rank; collective."""
        counts = self._has_loss and self.meshes.at.tp == 0
        total = (own if counts else torch.zeros_like(own)).detach().double()
        dist.all_reduce(total)
        return float(total)

    def _tokens(self) -> int:
        job = self.order.situation.job
        return job.tokens_per_step or job.global_batch

    def _to_device(self, batch: Batch) -> Batch:
        if self.device.type == "cpu":
            return batch
        return Batch(
            batch.inputs.to(self.device, non_blocking=True), batch.targets.to(self.device, non_blocking=True)
        )

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def build_chunks(order: RunOrder, meshes: Meshes, device: torch.device) -> list[ChunkModule | FactoryChunk]:
    """The chunks that this rank holds, in the order of its schedule's chunk numbers."""
    strategy, model = order.strategy, without_adapters(order.situation.model)
    tp_mesh = meshes.tp if strategy.tp > 1 else None
    tp = TensorParallel(tp_mesh, strategy.tp, meshes.at.tp, strategy.sp)
    experts = _expert_parallel(order, meshes)
    full = strategy.full_layers()
    engine = order.situation.engine.options
    dropout = engine.dropout if order.options.dropout is None else order.options.dropout
    chunks: list[ChunkModule | FactoryChunk] = []
    for chunk in range(strategy.vpp):
        stage = stage_of(strategy.schedule, strategy.pp, meshes.at.pp, chunk)
        options = BuildOptions(
            tensor_parallel=tp,
            seed=order.options.seed,
            device=str(device),
            full_layers=full[stage],
            scopes=strategy.recompute.scopes,
            attention=engine.attention,
            dropout=dropout,
            fused_cross_entropy=engine.fused_cross_entropy,
            cross_entropy_chunks=engine.cross_entropy_chunks,
            context=_context_parallel(strategy, meshes),
            experts=experts,
            train_mtp=order.predictions > 0,
            mtp_weight=order.options.mtp_weight,
            values=values_of(order),
        )
        if order.options.factory:
            stages = len(strategy.stages)
            chunks.append(build_factory_chunk(order.options.factory, stage, stages, options))
        else:
            built = build_chunk(model, cut_of_stage(strategy.stages, stage), options)
            chunks.append(built)
            attach(built, order.situation.model, replace(options, values=DRAWN), adapters_of(order))
    return chunks


def values_of(order: RunOrder) -> str:
    """Where the first values of the model's own parameters come from: where files give them, none are drawn, and what
    is sharded is made sharded."""
    if not has_weights(order.options.weights):
        return DRAWN
    return PROMISED if order.strategy.zero >= 2 and order.strategy.offload == "none" else GIVEN


def _context_parallel(strategy: Strategy, meshes: Meshes) -> ContextParallel:
    """This rank's place among those that divide the positions."""
    if strategy.cp == 1:
        return ContextParallel()
    return ContextParallel(meshes.root["cp"].get_group(), strategy.cp, meshes.at.cp, strategy.cp_kind)


def _expert_parallel(order: RunOrder, meshes: Meshes) -> ExpertParallel:
    """This rank's place among those that share experts, and what keeps their load even."""
    strategy = order.strategy
    positions = [name for name in ("cp", "tp") if meshes.root[name].size() > 1]
    balance = balance_of(order)
    if balance.auxiliary and positions:
        balance = replace(balance, group=meshes.positions.get_group())
    if strategy.ep * strategy.etp == 1 or meshes.experts is None:
        return ExpertParallel(balance=balance)
    mesh = meshes.experts.model
    ranks = (mesh.get_local_rank("ep"), mesh.get_local_rank("etp"))
    return ExpertParallel(mesh, strategy.ep, strategy.etp, *ranks, balance)


def balance_of(order: RunOrder) -> Balance:
    """What keeps the load of experts even; the loss is the mean over a step's micro-batches of all data ranks."""
    options = order.options
    batches = order.num_micro_batches * order.strategy.dp
    return Balance(
        capacity=order.situation.job.options.moe_capacity_factor,
        auxiliary=options.moe_aux_loss / batches,
        by_sequence=options.moe_aux_scope == "sequence",
    )


def cut_of_stage(stages: tuple[int, ...], stage: int) -> ChunkCut:
    """The segment of blocks of one virtual stage."""
    start = sum(stages[:stage])
    return ChunkCut(first=stage == 0, last=stage == len(stages) - 1, start=start, stop=start + stages[stage])


def _settings(order: RunOrder) -> DataParallelSettings:
    job, options = order.situation.job, order.options
    optimizer = OptimizerSettings(
        kind=job.optimizer,
        lr=options.lr,
        weight_decay=options.weight_decay,
        eps=options.adam_eps,
        warmup_steps=options.warmup_steps,
        total_steps=options.steps,
    )
    return DataParallelSettings(engine=job.engine, precision=job.precision, optimizer=optimizer)
