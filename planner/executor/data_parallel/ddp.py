"""Engine ddp: torch's DistributedDataParallel, whole copies of everything on every rank.

Parameters stay in fp32; under bf16, autocast casts weights and inputs operator by operator (Micikevicius et al. 2018).
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cost_models.specs.job import Optimizer as Kind
from planner.executor.data_parallel.autocast import Autocast
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings, FinalGradient
from planner.executor.data_parallel.held import Held, is_my_turn, part_of
from planner.executor.data_parallel.matrices import WholeMatrices
from planner.executor.data_parallel.records import unpadded
from planner.executor.data_parallel.ties import counted_here
from planner.executor.mesh import Meshes
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.schedule import build_schedule
from planner.executor.optimizers.target import Target
from planner.executor.precision import compute_dtype

MEBIBYTE = 1024 * 1024


class Replicated(DataParallel):
    """Gradients are summed by DDP's bucketed all-reduce during the last backward; every rank updates everything."""

    def __init__(self, chunks: Sequence[nn.Module], meshes: Meshes, settings: DataParallelSettings) -> None:
        super().__init__(chunks, meshes, compute_dtype(settings.precision))
        dtype = compute_dtype(settings.precision)
        self.modules = [
            _replicate(Autocast.around(chunk, meshes.device_type, dtype), meshes, settings)
            for chunk in self.modules
        ]
        self.optimizer = build_optimizer(self._targets(settings), settings.optimizer, dtype)
        self.schedule = build_schedule(self.optimizer, settings.optimizer)

    def _targets(self, settings: DataParallelSettings) -> list[Target]:
        group = self.meshes.data_group if self.meshes.data_size > 1 else None
        return [
            Target(parameter, WholeMatrices(group, turn=index))
            if settings.optimizer.kind is Kind.MUON and record.is_matrix
            else Target(parameter)
            for index, (record, parameter) in enumerate(zip(self.records, self._parameters, strict=True))
        ]

    def start_step(self, num_micro_batches: int) -> None:
        """Zero the gradients, which are views of DDP's buckets after the first step."""
        self.optimizer.zero_grad(set_to_none=False)

    @contextmanager
    def last_micro_batch(self, last: bool) -> Iterator[None]:
        """Gradients are summed over ranks in the last micro-batch alone."""
        replicated = [module for module in self.modules if isinstance(module, DistributedDataParallel)]
        for module in replicated:
            module.require_backward_grad_sync = last
        yield
        for module in replicated:
            module.require_backward_grad_sync = True

    def finish_gradients(self) -> None:
        """DDP waits for its reductions at the end of the last backward."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    @torch.no_grad()
    def full_gradients(self) -> dict[str, Tensor]:
        """Gradients by global name."""
        pairs = zip(self.records, self._final_gradients(), strict=True)
        return {record.name: unpadded(gradient.tensor.clone(), record) for record, gradient in pairs}

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Parameters by global name."""
        pairs = zip(self.records, self._parameters, strict=True)
        return {record.name: unpadded(parameter.detach().clone(), record) for record, parameter in pairs}

    def held(self) -> list[Held]:
        """Every parameter whole; data ranks take turns in writing."""
        size, rank = self.meshes.data_size, self.meshes.data_rank
        return [
            Held(
                record,
                part_of(record, self.meshes),
                parameter,
                start=0,
                first=0,
                numel=parameter.numel(),
                writes=counted_here(record, self.ties, self.meshes) and is_my_turn(index, size, rank),
            )
            for index, (record, parameter) in enumerate(zip(self.records, self._parameters, strict=True))
        ]

    def _final_gradients(self) -> list[FinalGradient]:
        return [FinalGradient(p.grad, counts=True) for p in self._parameters if p.grad is not None]

    def _sharing_groups(self) -> tuple[list[dist.ProcessGroup], list[dist.ProcessGroup]]:
        return [], []


def _replicate(module: nn.Module, meshes: Meshes, settings: DataParallelSettings) -> nn.Module:
    if meshes.data_size == 1 or not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    replicated = DistributedDataParallel(
        module,
        process_group=meshes.data_group,
        gradient_as_bucket_view=True,
        bucket_cap_mb=settings.bucket_bytes / MEBIBYTE,
        init_sync=False,
        **_no_buffers(),
    )
    replicated.register_comm_hook(meshes.data_group, _sum)
    return replicated


def _no_buffers() -> dict[str, Any]:
    """The option that leaves every rank its own buffers, under the name that the installed torch knows (renamed in
    2.13)."""
    known = inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}


def _sum(
    group: dist.ProcessGroup,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    """The sum over ranks of a bucket, where DDP's own reduction would be the mean."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    done: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
    return done
