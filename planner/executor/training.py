"""The steps of a run on one rank: train, tell, look whether the loss is one, and keep checkpoints."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.checkpoint.writer import CheckpointWriter
from planner.executor.events import Event
from planner.executor.failures import DataExhausted, LossNotFinite
from planner.executor.memory import MemoryMeter, MemorySample
from planner.executor.profiling import Profiler
from planner.executor.progress import Progress
from planner.executor.report import StepRecord
from planner.executor.request import RunOrder
from planner.executor.step import StepResult, Trainer
from planner.executor.torch_names import GATHER

PHASE_CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Training:
    """What the steps of a run need; `tell` writes an event where this rank has a writer."""

    order: RunOrder
    trainer: Trainer
    keeper: CheckpointWriter | None
    meter: MemoryMeter
    progress: Progress
    tell: Callable[[Event], None]

    def run(self, done: int, profiler: Profiler) -> None:
        """All steps after the first `done`; the last checkpoint is complete when this returns.

        Raises LossNotFinite and DataExhausted, on all ranks at the same step; in the latter case after a checkpoint of
        the last step that had its data.
        """
        for step in range(done + 1, self.order.options.steps + 1):
            self.progress.enter("data", step)
            position = self.trainer.sampler.next_sample
            try:
                record = self._step(step, profiler, is_first=step == done + 1)
            except DataExhausted:
                self._keep_what_there_is(step - 1, done, position)
                raise
            except (Exception, SystemExit):  # the latter by the model's or the data's own code
                if self.keeper is not None:
                    self.keeper.wait_a_moment()
                raise
            self.tell(record.to_event() | {"attempt": self.progress.attempt, "unit": self.order.unit})
            if self.keeper is not None and self.keeper.is_due(step):
                self.progress.enter(PHASE_CHECKPOINT)
                self.keeper.save(step)
        if self.keeper is not None:
            self.progress.enter(PHASE_CHECKPOINT)
            self.keeper.wait()

    def _step(self, step: int, profiler: Profiler, *, is_first: bool) -> StepRecord:
        if self.keeper is not None:
            self.keeper.check()
        is_saving = self.keeper is not None and self.keeper.is_writing
        self.meter.reset()
        profiler.start_step()
        result = self.trainer.train_step()
        profiler.end_step()
        if not math.isfinite(result.loss) or not math.isfinite(result.grad_norm):
            raise LossNotFinite(step, result.loss, result.grad_norm)
        record = gather_step(step, result, self.meter.sample(), self.trainer.device)
        position = self.trainer.sampler.next_sample
        return record.at(next_sample=position, is_first=is_first, is_saving=is_saving)

    def _keep_what_there_is(self, step: int, done: int, position: int) -> None:
        """A checkpoint of the last whole step, from which a run with more data goes on."""
        if self.keeper is None or step <= done:
            return
        self.trainer.sampler.next_sample = position
        self.keeper.save(step)
        self.keeper.wait()


def gather_step(step: int, result: StepResult, memory: MemorySample, device: torch.device) -> StepRecord:
    """One record of all ranks' seconds and bytes; collective."""
    own = [result.step_s, memory.allocated_bytes, memory.reserved_bytes, result.processor_s]
    rows = all_rows(torch.tensor(own, dtype=torch.float64, device=device))
    return StepRecord(
        step=step,
        step_s=max(row[0] for row in rows),
        loss=result.loss,
        grad_norm=result.grad_norm,
        lr=result.lr,
        tokens=result.tokens,
        memory_bytes=tuple(row[1] for row in rows),
        reserved_bytes=tuple(row[2] for row in rows),
        processor_s=tuple(row[3] for row in rows),
    )


def all_rows(own: Tensor) -> list[list[float]]:
    """The row of every rank; collective."""
    rows = own.new_empty(dist.get_world_size() * own.numel())
    GATHER(rows, own)
    found: list[list[float]] = rows.view(-1, own.numel()).tolist()
    return found
