"""What a training step asks of data parallelism, whatever the engine: one class per way of keeping copies in step."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from cost_models.specs.job import Precision
from planner.executor.data_parallel.flat import settle_frozen
from planner.executor.data_parallel.held import Held, is_my_turn, persistent_buffers, whole_held
from planner.executor.data_parallel.norm import clip, square_sum, summed
from planner.executor.data_parallel.records import ParameterRecord, describe
from planner.executor.data_parallel.ties import Tie, counted_here, find_ties
from planner.executor.mesh import Meshes
from planner.executor.optimizers.settings import OptimizerSettings

BUCKET_BYTES = 25 * 1024 * 1024
"""Gradients that travel in one message: torch DDP's default (Li et al. 2020, section 5.4)."""


@dataclass(frozen=True, slots=True)
class DataParallelSettings:
    """What beside the strategy decides how copies are kept in step."""

    engine: str
    precision: Precision = Precision.FP32
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    bucket_bytes: int = BUCKET_BYTES
    overlap: bool = True


@dataclass(frozen=True, slots=True)
class FinalGradient:
    """A gradient that this rank's optimizer uses."""

    tensor: Tensor
    counts: bool
    """Whether this rank counts it in the norm: each element once over all ranks."""
    expert: bool = False
    """Whether it is one of experts that stand apart, whose parts lie on other ranks."""


class DataParallel(ABC):
    """Chunks of one rank, wrapped; gradients are SUMMED over data-parallel ranks and micro-batches.

    A step is: `start_step`, backward of every micro-batch (each inside `last_micro_batch` where no pipeline runs
    them), `finish_gradients`, `step`.
    """

    modules: list[nn.Module]
    """What the pipeline or the loop calls, in the order of the chunks."""
    optimizer: Optimizer
    schedule: LRScheduler

    def __init__(self, chunks: Sequence[nn.Module], meshes: Meshes, dtype: torch.dtype) -> None:
        """What is not trained is kept in `dtype`, that of the computation."""
        for chunk in chunks:
            settle_frozen(chunk, meshes.device_type, dtype)
        self.meshes = meshes
        self._apart = meshes.experts is not None
        self.modules = list(chunks)
        self.buffers = persistent_buffers(chunks)
        self.records: list[ParameterRecord]
        self.records, self._parameters = describe(chunks)
        self.ties: tuple[Tie, ...] = find_ties(self.records, meshes)
        self._frozen_records, self._frozen = describe(chunks, trained=False)
        self._frozen_ties = find_ties(self._frozen_records, meshes)

    @abstractmethod
    def start_step(self, num_micro_batches: int) -> None:
        """Forget the last step's gradients; this many backward passes of every chunk follow."""

    def last_micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Surrounds forward and backward of one micro-batch; `last` says that reductions may start in it."""
        return nullcontext()

    @abstractmethod
    def finish_gradients(self) -> None:
        """Wait until every gradient is final: summed over data ranks, tensor-parallel parts and tied copies."""

    @abstractmethod
    def full_gradients(self) -> dict[str, Tensor]:
        """Whole gradients by global name, of this rank's chunks; collective, between finish and step."""

    @abstractmethod
    def full_parameters(self) -> dict[str, Tensor]:
        """Whole parameters by global name, of this rank's chunks; collective, between steps."""

    @abstractmethod
    def held(self) -> list[Held]:
        """What this rank's optimizer updates, between steps."""

    def frozen(self) -> list[Held]:
        """What nobody updates: every parameter whole; data ranks take turns in writing."""
        return [
            replace(
                whole_held(record, parameter, self.meshes),
                writes=counted_here(record, self._frozen_ties, self.meshes)
                and is_my_turn(index, group.size(), group.rank()),
            )
            for index, (record, parameter) in enumerate(zip(self._frozen_records, self._frozen, strict=True))
            for group in (self.meshes.data_group_of(expert=record.expert),)
        ]

    def publish(self) -> None:  # noqa: B027  (nothing to do where the optimizer holds the weights themselves)
        """Bring the weights in use up to date with what the optimizer holds; collective."""

    @abstractmethod
    def _final_gradients(self) -> list[FinalGradient]:
        """Gradients that this rank's optimizer uses."""

    @abstractmethod
    def _sharing_groups(self) -> tuple[list[dist.ProcessGroup], list[dist.ProcessGroup]]:
        """Data ranks that share one gradient between them: of dense parameters, of experts that stand apart."""

    def _global_norm(self, gradients: Sequence[FinalGradient]) -> float:
        """L2 norm over all ranks: dense and experts' squares over the ranks that divide each, both over stages."""
        device = torch.device(self.meshes.device_type)

        def squares(expert: bool) -> Tensor:
            counted = [each.tensor for each in gradients if each.counts and each.expert is expert]
            return square_sum(counted, device)

        dense, of_experts = self._sharing_groups()
        total = summed(squares(False), [*dense, self.meshes.tp_group])
        experts = self.meshes.experts
        if experts is not None:
            total += summed(squares(True), [*of_experts, experts.ep_group, experts.etp_group])
        return math.sqrt(summed(total, [self.meshes.pp_group]).item())

    def _update(self) -> None:
        """Apply the optimizer and bring every copy of the parameters up to date."""
        self.optimizer.step()

    @property
    def lr(self) -> float:
        """Learning rate of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    @torch.no_grad()
    def step(self, max_norm: float | None) -> float:
        """Clip to the norm (None: do not), update, advance the learning rate; returns the norm before clipping."""
        gradients = self._final_gradients()
        norm = self._global_norm(gradients)
        if max_norm is not None:
            clip([each.tensor for each in gradients], norm, max_norm)
        self._update()
        self.schedule.step()
        return norm
