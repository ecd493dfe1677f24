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
from torch.distributed.tensor import Shard

from cost_models.specs.job import Optimizer as Kind
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings, FinalGradient
from planner.executor.data_parallel.collectives import sum_coalesced
from planner.executor.data_parallel.held import Held, Part, is_my_turn, part_of
from planner.executor.data_parallel.matrices import RowMatrices, Sharded, part_shape
from planner.executor.data_parallel.records import ParameterRecord, local_of, unpadded
from planner.executor.data_parallel.ties import counted_here, sum_copies
from planner.executor.data_parallel.units import units_of
from planner.executor.mesh import Meshes
from planner.executor.model.parameters import give_storage
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
        super().__init__(chunks, meshes, compute_dtype(settings.precision))
        for chunk in self.modules:
            _shard(chunk, meshes, settings, reshard=reshard, offload=offload)
        self._parameters = _by_record(self.modules, self.records)
        self._frozen = _by_record(self.modules, self._frozen_records)
        self._sharded = [_sharded(record, meshes) for record in self.records]
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
                matrices = RowMatrices(self._sharded[index], turn=index)
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
        for expert in (False, True):
            own = [record for record in self.records if record.is_partial and record.expert is expert]
            partial = [gradients[record] for record in own if gradients[record].numel()]
            sum_coalesced(partial, self.meshes.partial_group_of(expert=expert))
        for tie in self.ties:
            sum_copies(tie, [gradients[record] for record in tie.records])

    @torch.no_grad()
    def full_gradients(self) -> dict[str, Tensor]:
        """Whole gradients by global name; collective."""
        return {
            record.name: self._whole(index, self._gradient(index))
            for index, record in enumerate(self.records)
        }

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Whole fp32 parameters by global name; collective."""
        for module in self.modules:
            for part in module.modules():
                if isinstance(part, FSDPModule):
                    part.reshard()
        return {
            record.name: self._whole(index, local_of(self._parameters[index]))
            for index, record in enumerate(self.records)
        }

    @torch.no_grad()
    def held(self) -> list[Held]:
        """The local rows of every parameter; replicas take turns in writing."""
        held = []
        for index, (record, parameter) in enumerate(zip(self.records, self._parameters, strict=True)):
            target, sharded = self._updated[index], self._sharded[index]
            if self._host is None:
                target.data = local_of(parameter)
            writes = self._counts[index] and self._is_my_turn(index, record)
            part, first = _piece(part_of(record, self.meshes), sharded)
            held.append(Held(record, part, target, 0, first, target.numel(), True, writes))
        return held

    def frozen(self) -> list[Held]:
        """The local rows of what nobody updates."""
        held = []
        for index, (record, parameter) in enumerate(zip(self._frozen_records, self._frozen, strict=True)):
            own = nn.Parameter(local_of(parameter), requires_grad=False)
            writes = counted_here(record, self._frozen_ties, self.meshes) and self._is_my_turn(index, record)
            part, first = _piece(part_of(record, self.meshes), _sharded(record, self.meshes))
            held.append(Held(record, part, own, 0, first, own.numel(), False, writes))
        return held

    def _is_my_turn(self, index: int, record: ParameterRecord) -> bool:
        """Whether this of several replicas with the same shards writes the parameter."""
        replicas = 1 if self._stands_apart(record) else self.meshes.root["replicate"].size()
        return is_my_turn(index, replicas, self.meshes.at.replicate % replicas)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy masters on the host into the sharded parameters, where there are any."""
        if self._host is not None:
            for parameter, master in zip(self._parameters, self._host.masters, strict=True):
                local_of(parameter).copy_(master)

    def _stands_apart(self, record: ParameterRecord) -> bool:
        return record.expert and self._apart

    def _whole(self, index: int, local: Tensor) -> Tensor:
        # Where parameters rest on the host, NCCL needs them on the device.
        whole = self._sharded[index].whole(local.to(self.meshes.device_type))
        return unpadded(whole, self.records[index])

    def _gradient(self, index: int) -> Tensor:
        """The local shard of a gradient; zeros for a parameter that no micro-batch used."""
        parameter = self._parameters[index]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return local_of(parameter.grad)

    def _final_gradients(self) -> list[FinalGradient]:
        pairs = zip(self.records, self._counts, strict=True)
        return [
            FinalGradient(self._gradient(index), counts, self._stands_apart(record))
            for index, (record, counts) in enumerate(pairs)
        ]

    def _sharing_groups(self) -> tuple[list[dist.ProcessGroup], list[dist.ProcessGroup]]:
        return [self.meshes.shard.get_group()], [self.meshes.data_group_of(expert=True)]

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
    """Shard a chunk in place: experts that stand apart, each unit, what is left; gradients are sums, not means."""
    dtype = compute_dtype(settings.precision)
    mixed = MixedPrecisionPolicy()
    if dtype is not REDUCE_DTYPE:
        mixed = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=REDUCE_DTYPE)
    policy = sharding_policy(offload, meshes.device_type)

    def shard(unit: list[nn.Module], expert: bool) -> None:
        data = meshes.experts.data if expert and meshes.experts else meshes.fsdp
        fully_shard(
            unit if len(unit) > 1 else unit[0],
            mesh=data,
            reshard_after_forward=reshard,
            mp_policy=mixed,
            offload_policy=policy,
            shard_placement_fn=(lambda p: Shard(_dim(local_of(p).shape, data.size()))) if expert else None,
        )

    units = units_of(chunk)
    for unit in units if meshes.experts is not None else []:
        experts = [part for top in unit for part in top.modules() if _holds_experts(part)]
        if experts:
            shard(experts, expert=True)
    for unit in [*units, [chunk]]:
        shard(unit, expert=False)
    give_storage(chunk, meshes.device_type)
    for part in chunk.modules():
        if isinstance(part, FSDPModule):
            # Gloo has no reduction that divides, so the factor 1 needs plain sums asked for too.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)


def _holds_experts(part: nn.Module) -> bool:
    return any(getattr(parameter, "expert_parallel", False) for parameter in part.parameters(recurse=False))


def _dim(shape: Sequence[int], ranks: int) -> int:
    """Dimension that data ranks divide: the experts, or the first other one where those do not go round."""
    if shape[0] % ranks == 0:
        return 0
    return next((dim for dim, size in enumerate(shape) if size % ranks == 0), 0)


def _sharded(record: ParameterRecord, meshes: Meshes) -> Sharded:
    """How FSDP2 divides a parameter's local part."""
    mesh = meshes.model_mesh(expert=record.expert)
    if not record.expert or meshes.experts is None:
        return Sharded(record, mesh, meshes.shard.get_group())
    group = meshes.experts.data_group
    return Sharded(record, mesh, group, _dim(part_shape(record, mesh), group.size()))


def _piece(part: Part, sharded: Sharded) -> tuple[Part, int]:
    """The box that this rank's elements lie in one after the other, and the place of the first of them."""
    dim, ranks, rank = sharded.dim, sharded.group.size(), sharded.group.rank()
    length = part.sizes[dim] if part.sizes else 1
    each = -(-length // ranks)
    first = min(each * rank, length)
    if dim == 0:
        return part, first * math.prod(part.sizes[1:])
    offsets, sizes = list(part.offsets), list(part.sizes)
    offsets[dim] += first
    sizes[dim] = min(each, length - first)
    return Part(tuple(offsets), tuple(sizes)), 0


def _by_record(modules: Sequence[nn.Module], records: Sequence[ParameterRecord]) -> list[nn.Parameter]:
    """The parameters that now stand in the place of the recorded ones."""
    named = [dict(module.named_parameters()) for module in modules]
    return [named[record.chunk][record.name] for record in records]
