"""Runs a step's micro-batches on one rank: a loop without a pipeline, or this rank's actions of a schedule."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from cost_models.errors import BadInput
from cost_models.schedule import Operation, Phase, ScheduleName, num_stages, operations, stage_of
from planner.executor.data_parallel.base import DataParallel
from planner.executor.mesh import Meshes
from planner.executor.model.chunk import last_output
from planner.executor.pipeline.actions import Action, Cargo, Run, Send, rank_actions
from planner.executor.pipeline.links import Links
from planner.executor.pipeline.sharded import reduce_rest, reduce_with
from planner.executor.pipeline.stage import LossFunction, Stage
from planner.executor.request import RunOrder


class Runner(ABC):
    """Forward and backward of every micro-batch of a step."""

    @abstractmethod
    def run(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], loss: LossFunction) -> list[Tensor]:
        """Losses by micro-batch, on the rank with the last stage (elsewhere none); gradients are left in place.

        Every rank gives a tensor per micro-batch; inputs are read on the first stage's rank, targets on the last's.
        """


@dataclass(frozen=True, slots=True)
class PipelineShape:
    """The point (schedule, p, v, m) and this rank's place in the pipeline."""

    schedule: ScheduleName
    p: int
    v: int
    m: int
    rank: int

    @property
    def num_stages(self) -> int:
        """Stages of the model."""
        return num_stages(self.schedule, self.p, self.v)

    def operations(self) -> tuple[Operation, ...]:
        """This rank's operation list."""
        return operations(self.schedule, self.p, self.v, self.m)[self.rank]

    def actions(self) -> tuple[Action, ...]:
        """This rank's operation list with its messages."""
        return rank_actions(self.schedule, self.p, self.v, self.m)[self.rank]


def build_runner(order: RunOrder, meshes: Meshes, data_parallel: DataParallel) -> Runner:
    """The runner of an order on this rank."""
    strategy = order.strategy
    if strategy.pp == 1:
        return SequentialRunner(data_parallel)
    shape = PipelineShape(strategy.schedule, strategy.pp, strategy.vpp, order.num_micro_batches, meshes.at.pp)
    device = torch.device(meshes.device_type)
    return PipelineRunner(shape, data_parallel, meshes.pp_group, device)


class SequentialRunner(Runner):
    """Gradient accumulation on a rank that holds the whole model."""

    def __init__(self, data_parallel: DataParallel) -> None:
        self._data_parallel = data_parallel

    def run(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], loss: LossFunction) -> list[Tensor]:
        """One micro-batch after the other, forward and backward."""
        losses = []
        for number, (x, target) in enumerate(zip(inputs, targets, strict=True)):
            with self._data_parallel.last_micro_batch(number == len(inputs) - 1):
                losses.append(self._one(x, target, loss))
        return losses

    def _one(self, x: Tensor, target: Tensor, loss: LossFunction) -> Tensor:
        *before, last = self._data_parallel.modules
        for module in before:
            x = module(x)
        x = last_output(last, x, target)
        found = loss(x, target)
        del x  # the logits are freed as the backward goes
        found.backward()  # type: ignore[no-untyped-call]
        return found.detach()


class PipelineRunner(Runner):
    """Follows this rank's actions; `executed` are the operations of the last step as they ran."""

    def __init__(
        self,
        shape: PipelineShape,
        data_parallel: DataParallel,
        group: dist.ProcessGroup,
        device: torch.device,
    ) -> None:
        if shape.schedule is ScheduleName.DUALPIPE:
            raise BadInput(
                "schedule dualpipe needs two copies of every parameter, which are not run; use schedule=dualpipe-v"
            )
        self.shape = shape
        self.executed: list[Operation] = []
        self._data_parallel = data_parallel
        self._actions = shape.actions()
        own = shape.operations()
        self._stages = [
            Stage(module, stage_of(shape.schedule, shape.p, shape.rank, chunk), _split(own, chunk))
            for chunk, module in enumerate(data_parallel.modules)
        ]
        self._by_index = {stage.index: stage for stage in self._stages}
        self._last = _last_passes(own)
        self._links = Links(group, device)
        self._ready: dict[tuple[Cargo, int, int], Tensor] = {}
        self._local: dict[tuple[Cargo, int, int], Tensor] = {}
        self._losses: dict[int, Tensor] = {}

    def run(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], loss: LossFunction) -> list[Tensor]:
        """The step's actions in order."""
        if len(inputs) != self.shape.m or len(targets) != self.shape.m:
            msg = (
                f"the schedule has {self.shape.m} micro-batches, {len(inputs)} are given; give {self.shape.m}"
            )
            raise ValueError(msg)
        self.executed = []
        self._losses = {}
        for action in self._actions:
            if isinstance(action, Run):
                self._run(action, inputs, targets, loss)
            elif isinstance(action, Send):
                tensor = self._ready.pop((action.cargo, action.stage, action.micro_batch))
                self._links.send(action, tensor)
            else:
                self._links.receive(action)
        self._links.finish()
        return [self._losses[number] for number in sorted(self._losses)]

    def _run(
        self, action: Run, inputs: Sequence[Tensor], targets: Sequence[Tensor], loss: LossFunction
    ) -> None:
        operation, stage = action.operation, self._by_index[action.stage]
        name = f"{operation.phase.name.lower()} {stage.index}.{operation.micro_batch}"
        with record_function(name):
            if operation.phase is Phase.FORWARD:
                self._forward(stage, operation.micro_batch, inputs, (targets, loss))
            else:
                if stage.splits:
                    reduce_with(stage.module, operation.phase)
                with self._data_parallel.last_micro_batch(operation in self._last):
                    self._backward(stage, operation)
        self.executed.append(operation)

    def _forward(
        self,
        stage: Stage,
        number: int,
        inputs: Sequence[Tensor],
        goal: tuple[Sequence[Tensor], LossFunction],
    ) -> None:
        x = inputs[number] if stage.index == 0 else self._take(Cargo.OUTPUT, stage.index, number)
        if stage.index < self.shape.num_stages - 1:
            self._hand_on(Cargo.OUTPUT, stage.index, number, stage.forward(number, x))
            return
        targets, loss = goal
        found = stage.forward_loss(number, x, targets[number], loss)
        self._losses[number] = found
        self._local[Cargo.GRADIENT, stage.index, number] = torch.ones_like(found)

    def _backward(self, stage: Stage, operation: Operation) -> None:
        number = operation.micro_batch
        if operation.phase is Phase.WEIGHT_GRADIENT:
            stage.weight_gradient(number)
            if operation in self._last:
                reduce_rest(stage.module)
            return
        gradient = self._take(Cargo.GRADIENT, stage.index, number)
        whole = operation.phase is Phase.BACKWARD
        found = (stage.backward if whole else stage.input_gradient)(number, gradient)
        if stage.index > 0 and found is not None:
            self._hand_on(Cargo.GRADIENT, stage.index, number, found)

    def _hand_on(self, cargo: Cargo, stage: int, number: int, tensor: Tensor) -> None:
        """Give a tensor to the next stage (a gradient to the one before) on this rank, or to its message."""
        target = stage + 1 if cargo is Cargo.OUTPUT else stage - 1
        if target in self._by_index:
            self._local[cargo, target, number] = tensor
        else:
            self._ready[cargo, stage, number] = tensor

    def _take(self, cargo: Cargo, stage: int, number: int) -> Tensor:
        """What a stage needs, from this rank or from another."""
        local = self._local.pop((cargo, stage, number), None)
        return self._links.take(cargo, stage, number) if local is None else local


def _split(own: Sequence[Operation], chunk: int) -> frozenset[int]:
    """Micro-batches whose backward runs in two halves on a chunk."""
    halves = [each for each in own if each.phase is Phase.INPUT_GRADIENT and each.chunk == chunk]
    return frozenset(each.micro_batch for each in halves)


def _last_passes(own: Sequence[Operation]) -> frozenset[Operation]:
    """The last backward of each kind on every chunk: the gradients they make are reduced over all ranks."""
    last = {(each.phase, each.chunk): each for each in own if each.phase is not Phase.FORWARD}
    return frozenset(last.values())
