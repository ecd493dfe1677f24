"""ZeRO 2 and 3 and hybrid sharding through FSDP2: engines fsdp2 and torch.

Parameters, gradients and optimizer states are sharded over the shard ranks, unit by unit. ZeRO-3 frees a unit's
gathered parameters after its forward and gathers them again for its backward (reshard_after_forward); ZeRO-2 keeps
them between. Gradients are reduced to their shards in every micro-batch; replicas (HSDP) sum theirs in the last one.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from cost_models.specs.job import Optimizer as Kind
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.collectives import gather_rows, sum_coalesced
from planner.executor.data_parallel.held import Held, is_my_turn, part_of
from planner.executor.data_parallel.matrices import RowMatrices, tp_rows
from planner.executor.data_parallel.records import ParameterRecord, local_of, unpadded, whole_of
from planner.executor.data_parallel.ties import counted_here, sum_copies
from planner.executor.data_parallel.units import units_of
from planner.executor.mesh import Meshes
from planner.executor.offload import HostCopies, offloads_optimizer, sharding_policy
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.schedule import build_schedule
from planner.executor.optimizers.target import Target
from planner.executor.precision import REDUCE_DTYPE, compute_dtype


class FullySharded(DataParallel):
    """Everything sharded at rest; the optimizer works on plain views of the local shards."""

    def __init__(
        self,
        chunks: Sequence[nn.Module],
        meshes: Meshes,
        settings: DataParallelSettings,
        *,
        reshard: bool,
        offload: str,
    ) -> None:
        super().__init__(chunks, meshes)
        for chunk in self.modules:
            _shard(chunk, meshes, settings, reshard=reshard, offload=offload)
        self._parameters = _by_record(self.modules, self.records)
        self._counts = [counted_here(record, self.ties, meshes) for record in self.records]
        self._views = [nn.Parameter(local_of(parameter)) for parameter in self._parameters]
        on_host = offloads_optimizer(offload, meshes.device_type)
        self._host = HostCopies([view.data for view in self._views]) if on_host else None
        targets = self._targets(settings)
        self._updated = [target.parameter for target in targets]
        self.optimizer = build_optimizer(targets, settings.optimizer, compute_dtype(settings.precision))
        self.schedule = build_schedule(self.optimizer, settings.optimizer)

    def _targets(self, settings: DataParallelSettings) -> list[Target]:
        """The local shards, or their copies on the host, as the optimizer sees them."""
        targets = []
        for index, record in enumerate(self.records):
            parameter, matrices = self._views[index], None
            if self._host is not None:
                parameter = nn.Parameter(self._host.masters[index])
                parameter.grad = self._host.gradients[index]
            if settings.optimizer.kind is Kind.MUON and record.is_matrix:
                rows = tp_rows(record, self.meshes.tp)
                group = self.meshes.shard.get_group()
                matrices = RowMatrices(record, rows, self.meshes.tp, group, turn=index)
            targets.append(Target(parameter, matrices))
        return targets

    def start_step(self, num_micro_batches: int) -> None:
        """Drop the sharded gradients of the last step."""
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = None
            view.grad = None

    @contextmanager
    def last_micro_batch(self, last: bool) -> Iterator[None]:
        """Replicas sum their shards in the last micro-batch alone."""
        if self.meshes.fsdp.ndim > 1:
            for module in self.modules:
                assert isinstance(module, FSDPModule)
                module.set_requires_all_reduce(last)
        yield

    @torch.no_grad()
    def finish_gradients(self) -> None:
        """Sum tensor-parallel parts and tied copies of the sharded gradients."""
        gradients = {record: self._gradient(index) for index, record in enumerate(self.records)}
        partial = [gradients[record] for record in self.records if record.is_partial]
        sum_coalesced([each for each in partial if each.numel()], self.meshes.tp_group)
        for tie in self.ties:
            sum_copies(tie, [gradients[record] for record in tie.records])

    @torch.no_grad()
    def full_gradients(self) -> dict[str, Tensor]:
        """Whole gradients by global name; collective."""
        return {
            record.name: self._whole(self._gradient(index), record)
            for index, record in enumerate(self.records)
        }

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Whole fp32 parameters by global name; collective."""
        for module in self.modules:
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()
        pairs = zip(self.records, self._parameters, strict=True)
        return {record.name: self._whole(local_of(parameter), record) for record, parameter in pairs}

    @torch.no_grad()
    def held(self) -> list[Held]:
        """The local rows of every parameter; replicas take turns in writing."""
        return [self._held(index, record) for index, record in enumerate(self.records)]

    def _held(self, index: int, record: ParameterRecord) -> Held:
        target = self._updated[index]
        if self._host is None:
            target.data = local_of(self._parameters[index])
        part = part_of(record, self.meshes)
        rows, shards = part.sizes[0] if part.sizes else 1, self.meshes.shard
        first = min(-(-rows // shards.size()) * shards.get_local_rank(), rows)
        my_turn = is_my_turn(index, self.meshes.root["replicate"].size(), self.meshes.at.replicate)
        return Held(
            record,
            part,
            target,
            start=0,
            first=first * math.prod(part.sizes[1:]),
            numel=target.numel(),
            writes=self._counts[index] and my_turn,
        )

    @torch.no_grad()
    def publish(self) -> None:
        """Copy masters on the host into the sharded parameters, where there are any."""
        if self._host is not None:
            for parameter, master in zip(self._parameters, self._host.masters, strict=True):
                local_of(parameter).copy_(master)

    def _whole(self, local: Tensor, record: ParameterRecord) -> Tensor:
        tp = self.meshes.tp
        # Where parameters rest on the host, NCCL needs them on the device.
        mine = local.to(self.meshes.device_type)
        rows = gather_rows(mine, tp_rows(record, tp), self.meshes.shard.get_group())
        return unpadded(whole_of(rows, record, tp), record)

    def _gradient(self, index: int) -> Tensor:
        """The local shard of a gradient; zeros for a parameter that no micro-batch used."""
        parameter = self._parameters[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return local_of(parameter.grad)

    def _final_gradients(self) -> list[tuple[Tensor, bool]]:
        gradients = [self._gradient(index) for index in range(len(self.records))]
        return list(zip(gradients, self._counts, strict=True))

    def _norm_groups(self) -> list[dist.ProcessGroup]:
        return [self.meshes.shard.get_group(), self.meshes.tp_group, self.meshes.pp_group]

    def _update(self) -> None:
        gradients = [self._gradient(index) for index in range(len(self.records))]
        for view, parameter, gradient in zip(self._views, self._parameters, gradients, strict=True):
            # The first forward may have moved the shard to padded storage, so the view is taken anew.
            view.data = local_of(parameter)
            if self._host is None:
                view.grad = gradient
        if self._host is None:
            self.optimizer.step()
            return
        self._host.load_gradients(gradients)
        self.optimizer.step()
        for view, master in zip(self._views, self._host.masters, strict=True):
            view.data.copy_(master, non_blocking=True)


def _shard(
    chunk: nn.Module, meshes: Meshes, settings: DataParallelSettings, *, reshard: bool, offload: str
) -> None:
    """Shard a chunk in place: each unit, then what is left; gradients are sums, not means."""
    dtype = compute_dtype(settings.precision)
    mixed = MixedPrecisionPolicy()
    if dtype is not REDUCE_DTYPE:
        mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=REDUCE_DTYPE)
    policy = sharding_policy(offload, meshes.device_type)
    for unit in [*units_of(chunk), [chunk]]:
        fully_shard(
            unit if len(unit) > 1 else unit[0],
            mesh=meshes.fsdp,
            reshard_after_forward=reshard,
            mp_policy=mixed,
            offload_policy=policy,
        )
    for part in chunk.modules():
        if isinstance(part, FSDPModule):
            # Gloo has no reduction that divides, so the factor 1 needs plain sums asked for too.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def _by_record(modules: Sequence[nn.Module], records: Sequence[ParameterRecord]) -> list[nn.Parameter]:
    """The parameters that now stand in the place of the recorded ones."""
    named = [dict(module.named_parameters()) for module in modules]
    return [named[record.chunk][record.name] for record in records]
