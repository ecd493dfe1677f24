"""ZeRO 0 and 1 of the torch engine: flat buffers, reduced bucket by bucket while the last backward still runs.

Each parameter is a view of a flat weight buffer and its gradient a view of a flat fp32 gradient buffer, into which
every micro-batch adds. ZeRO-0 sums the gradient buffers over data ranks (all-reduce). ZeRO-1 (Rajbhandari et al. 2020,
section 5.1) sums each rank's share (reduce-scatter), keeps optimizer states for that share alone, and gathers the
updated weights. With bf16 weights the share's fp32 masters are kept beside it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cost_models.specs.job import Optimizer as Kind
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings, FinalGradient
from planner.executor.data_parallel.collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    shard_of,
    sum_coalesced,
)
from planner.executor.data_parallel.flat import (
    FlatBucket,
    cast_inputs,
    flatten,
    replace_parameters,
    settle_buffers,
)
from planner.executor.data_parallel.held import Held, is_my_turn, overlap, part_of
from planner.executor.data_parallel.layout import ALIGNMENT, LayoutOptions, lay_out
from planner.executor.data_parallel.matrices import BucketMatrices
from planner.executor.data_parallel.records import local_of
from planner.executor.data_parallel.ties import counted_here, sum_copies
from planner.executor.mesh import Meshes
from planner.executor.offload import HostCopies, offloads_optimizer
from planner.executor.optimizers.adam8bit import BLOCK_ELEMENTS
from planner.executor.optimizers.build import build_optimizer
from planner.executor.optimizers.schedule import build_schedule
from planner.executor.optimizers.target import Target
from planner.executor.precision import compute_dtype


class FlatDataParallel(DataParallel):
    """Parameters and gradients in flat buffers; states whole on every rank (ZeRO-0) or shared (ZeRO-1)."""

    def __init__(
        self,
        chunks: Sequence[nn.Module],
        meshes: Meshes,
        settings: DataParallelSettings,
        *,
        shared: bool,
        offload: str = "none",
    ) -> None:
        super().__init__(chunks, meshes, compute_dtype(settings.precision))
        self._sharing = shared
        self._alone = all(meshes.data_group_of(expert=each).size() == 1 for each in (False, True))
        self._dtype = compute_dtype(settings.precision)
        self._overlap = settings.overlap
        self._buckets = self._flatten(settings)
        self._counts = [counted_here(bucket.records[0], self.ties, meshes) for bucket in self._buckets]
        self._next = 0
        self._works: list[Any] = []
        self._masters = [bucket.masters for bucket in self._buckets]
        on_host = offloads_optimizer(offload, meshes.device_type)
        self._host = HostCopies(self._masters) if on_host else None
        if self._host is not None:
            self._masters = self._host.masters
            for bucket in self._buckets:
                bucket.masters = bucket.weights  # lets go of the device's fp32 copy
        by_bucket = [self._targets(index, settings) for index in range(len(self._buckets))]
        self._updated = [[target.parameter for target in targets] for targets in by_bucket]
        targets = [target for targets in by_bucket for target in targets]
        self.optimizer = build_optimizer(targets, settings.optimizer, self._dtype)
        self.schedule = build_schedule(self.optimizer, settings.optimizer)
        self._watch_gradients()
        cast_inputs(self.modules, self._dtype)

    def start_step(self, num_micro_batches: int) -> None:
        """Zero the gradient buffers, which stay where they are."""
        self._next = 0
        for bucket in self._buckets:
            bucket.gradients.zero_()
            bucket.left = num_micro_batches * len(bucket.parameters)

    def finish_gradients(self) -> None:
        """Reduce what the hooks did not start, wait, then sum tensor-parallel parts and tied copies."""
        for bucket in self._buckets[self._next :]:
            self._reduce(bucket)
        self._next = len(self._buckets)
        for work in self._works:
            work.wait()
        self._works.clear()
        self._finish_shares()

    @torch.no_grad()
    def full_gradients(self) -> dict[str, Tensor]:
        """Whole gradients; gathered in place, for the other ranks' shares of a buffer hold nothing of use."""
        gradients = [bucket.gradients for bucket in self._buckets]
        self._gather(gradients)
        return self._named(gradients)

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Whole parameters; fp32 masters are not gathered, so with bf16 weights these are the weights in use."""
        return self._named([bucket.weights for bucket in self._buckets])

    def held(self) -> list[Held]:
        """Every parameter's elements in this rank's share of its bucket."""
        return [each for index, bucket in enumerate(self._buckets) for each in self._held_in(index, bucket)]

    @torch.no_grad()
    def publish(self) -> None:
        """Copy masters into the weights in use, and gather the shares of the other ranks."""
        for bucket, master in zip(self._buckets, self._masters, strict=True):
            share = self._share(bucket.weights, bucket)
            if share.data_ptr() != master.data_ptr():
                share.copy_(master, non_blocking=True)
        self._gather([bucket.weights for bucket in self._buckets])

    def _held_in(self, index: int, bucket: FlatBucket) -> Iterator[Held]:
        """One bucket's: a share may begin and end inside a parameter."""
        group, shared = self._group_of(bucket), self._is_shared(bucket)
        share = bucket.layout.numel // group.size() if shared else bucket.layout.numel
        begin = share * group.rank() if shared else 0
        targets = self._updated[index]
        for place, (position, record) in zip(bucket.layout.places, enumerate(bucket.records), strict=True):
            start, stop = overlap((begin, begin + share), (place.start, place.start + place.numel))
            if start >= stop:
                continue
            whole = len(targets) == 1
            yield Held(
                record,
                part_of(record, self.meshes),
                targets[0 if whole else position],
                start=start - begin if whole else 0,
                first=start - place.start,
                numel=stop - start,
                updates=self._has_states,
                writes=self._counts[index] and self._is_my_turn(bucket, place.index),
            )

    @property
    def _has_states(self) -> bool:
        """Whether this rank's optimizer has states."""
        return True

    def _is_my_turn(self, bucket: FlatBucket, index: int) -> bool:
        """Whether this rank writes a parameter's elements that it holds: the share is its own, copies take turns."""
        group = self._group_of(bucket)
        return self._is_shared(bucket) or is_my_turn(index, group.size(), group.rank())

    def _flatten(self, settings: DataParallelSettings) -> list[FlatBucket]:
        kind = settings.optimizer.kind
        options = LayoutOptions(
            self.meshes.data_size,
            settings.bucket_bytes,
            alignment=BLOCK_ELEMENTS if kind is Kind.ADAM8BIT else ALIGNMENT,
            matrices_apart=kind is Kind.MUON,
            expert_ranks=self.meshes.data_group_of(expert=True).size(),
        )
        numels = [local_of(parameter).numel() for parameter in self._parameters]
        buckets: list[FlatBucket] = []
        replaced: dict[nn.Parameter, nn.Parameter] = {}
        for layout in lay_out(self.records, numels, options):
            mesh = self.meshes.model_mesh(expert=self.records[layout.places[0].index].expert)
            bucket, new = flatten(layout, self.records, self._parameters, self._dtype, mesh)
            bucket.masters = self._own_masters(bucket)
            buckets.append(bucket)
            replaced |= new
        for module in self.modules:
            replace_parameters(module, replaced)
            settle_buffers(module, self.meshes.device_type)
        self._parameters = []
        return buckets

    def _group_of(self, bucket: FlatBucket) -> dist.ProcessGroup:
        """Ranks whose gradients of the bucket are summed."""
        return self.meshes.data_group_of(expert=bucket.expert)

    def _is_shared(self, bucket: FlatBucket) -> bool:
        """Whether the bucket's states are shared between the ranks of its group."""
        return self._sharing and self._group_of(bucket).size() > 1

    def _share(self, flat: Tensor, bucket: FlatBucket) -> Tensor:
        """The part of one of the bucket's buffers that this rank's optimizer updates."""
        return shard_of(flat, self._group_of(bucket)) if self._is_shared(bucket) else flat

    def _shares(self) -> list[Tensor]:
        """This rank's shares of the gradients."""
        return [self._share(bucket.gradients, bucket) for bucket in self._buckets]

    def _own_masters(self, bucket: FlatBucket) -> Tensor:
        """This rank's share in fp32: of the weights themselves, or copied out of the whole masters."""
        share = self._share(bucket.masters, bucket)
        return share if bucket.weights is bucket.masters else share.clone()

    def _targets(self, index: int, settings: DataParallelSettings) -> list[Target]:
        """A bucket as the optimizer sees it: one flat tensor, or one tensor a parameter where shapes matter."""
        bucket, master = self._buckets[index], self._masters[index]
        gradient = self._host.gradients[index] if self._host else self._share(bucket.gradients, bucket)
        pairs = [(master, gradient)]
        matrices = None
        if settings.optimizer.kind is Kind.ADAFACTOR:
            pairs = list(zip(bucket.views(master), bucket.views(gradient), strict=True))
        if settings.optimizer.kind is Kind.MUON and bucket.records[0].is_matrix:
            mesh, group = self.meshes.model_mesh(expert=bucket.expert), self._matrix_group(bucket)
            matrices = BucketMatrices(bucket, mesh, group, shared=self._is_shared(bucket))
        targets = [Target(nn.Parameter(values), matrices) for values, _ in pairs]
        for target, (_, own) in zip(targets, pairs, strict=True):
            target.parameter.grad = own
        return targets

    def _matrix_group(self, bucket: FlatBucket) -> dist.ProcessGroup | None:
        """Ranks that divide the work on whole matrices between them."""
        group = self._group_of(bucket)
        return group if group.size() > 1 else None

    def _watch_gradients(self) -> None:
        """Count gradients as they come, so that a bucket's reduction starts when its last one is there."""
        if not self._overlap or self._alone:
            return
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._counter(bucket))  # type: ignore[no-untyped-call]

    def _counter(self, bucket: FlatBucket) -> Callable[[Tensor], None]:
        def count(parameter: Tensor) -> None:
            bucket.left -= 1
            if bucket.left == 0:
                self._reduce_ready()
            elif bucket.left < 0:
                # The bucket may be on its way already: what came late would be lost without a word.
                raise RuntimeError(
                    f"more gradients came than micro-batches x parameters of the bucket of {bucket.records[0].name}; "
                    "accumulate each parameter's gradient once per micro-batch"
                )

        return count

    def _reduce_ready(self) -> None:
        """Start reductions in one fixed order: ranks of a group must call collectives in the same order."""
        while self._next < len(self._buckets) and self._buckets[self._next].left <= 0:
            self._reduce(self._buckets[self._next])
            self._next += 1

    def _reduce(self, bucket: FlatBucket) -> None:
        group = self._group_of(bucket)
        if group.size() == 1:
            return
        start = reduce_scatter if self._sharing else all_reduce
        self._works.append(start(bucket.gradients, group))

    def _finish_shares(self) -> None:
        shares = self._shares()
        for expert in (False, True):
            partial = [
                share
                for share, each in zip(shares, self._buckets, strict=True)
                if each.records[0].is_partial and each.expert is expert
            ]
            sum_coalesced(partial, self.meshes.partial_group_of(expert=expert))
        by_record = {each.records[0]: share for share, each in zip(shares, self._buckets, strict=True)}
        for tie in self.ties:
            sum_copies(tie, [by_record[record] for record in tie.records])

    def _final_gradients(self) -> list[FinalGradient]:
        found = zip(self._shares(), self._counts, self._buckets, strict=True)
        return [
            FinalGradient(share, counts, self._apart and bucket.expert) for share, counts, bucket in found
        ]

    def _sharing_groups(self) -> tuple[list[dist.ProcessGroup], list[dist.ProcessGroup]]:
        if not self._sharing:
            return [], []
        return [self.meshes.data_group], [self.meshes.data_group_of(expert=True)]

    def _update(self) -> None:
        if self._host is not None:
            self._host.load_gradients(self._shares())
        self.optimizer.step()
        self.publish()

    def _gather(self, flats: Sequence[Tensor]) -> None:
        """Fill one buffer of each bucket from the shares of its ranks, where they are shared."""
        pairs = zip(self._buckets, flats, strict=True)
        works = [
            all_gather(flat, self._group_of(bucket)) for bucket, flat in pairs if self._is_shared(bucket)
        ]
        for work in works:
            work.wait()

    def _named(self, flats: Sequence[Tensor]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for bucket, flat in zip(self._buckets, flats, strict=True):
            found |= bucket.full(flat, self.meshes.model_mesh(expert=bucket.expert))
        return found
