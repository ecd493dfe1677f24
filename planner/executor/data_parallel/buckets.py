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
from planner.executor.data_parallel.base import DataParallel, DataParallelSettings
from planner.executor.data_parallel.collectives import (
    all_gather,
    all_reduce,
    reduce_scatter,
    shard_of,
    sum_coalesced,
)
from planner.executor.data_parallel.flat import FlatBucket, flatten, replace_parameters, settle_rest
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
        super().__init__(chunks, meshes)
        self._group = meshes.data_group
        self._shared = shared and self._group.size() > 1
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
        self._cast_inputs()

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
        return self._full([bucket.gradients for bucket in self._buckets])

    @torch.no_grad()
    def full_parameters(self) -> dict[str, Tensor]:
        """Whole parameters; fp32 masters are not gathered, so with bf16 weights these are the weights in use."""
        return {
            name: tensor
            for bucket in self._buckets
            for name, tensor in bucket.full(bucket.weights, self.meshes.tp).items()
        }

    def held(self) -> list[Held]:
        """Every parameter's elements in this rank's share of its bucket."""
        return [each for index in range(len(self._buckets)) for each in self._held_in(index)]

    @torch.no_grad()
    def publish(self) -> None:
        """Copy masters into the weights in use, and gather the shares of the other ranks."""
        for bucket, master in zip(self._buckets, self._masters, strict=True):
            share = self._share(bucket.weights)
            if share.data_ptr() != master.data_ptr():
                share.copy_(master, non_blocking=True)
        if self._shared:
            for work in [all_gather(bucket.weights, self._group) for bucket in self._buckets]:
                work.wait()

    def _held_in(self, index: int) -> Iterator[Held]:
        """One bucket's: a share may begin and end inside a parameter."""
        bucket, targets = self._buckets[index], self._updated[index]
        share = len(self._share(bucket.weights))
        begin = share * self._group.rank() if self._shared else 0
        for position, place in enumerate(bucket.layout.places):
            start, stop = overlap((begin, begin + share), (place.start, place.start + place.numel))
            if start >= stop:
                continue
            is_one = len(targets) == 1
            yield Held(
                bucket.records[position],
                part_of(bucket.records[position], self.meshes),
                targets[0 if is_one else position],
                start=start - begin if is_one else 0,
                first=start - place.start,
                numel=stop - start,
                updates=self._has_states,
                writes=self._counts[index] and self._is_my_turn(place.index),
            )

    @property
    def _has_states(self) -> bool:
        """Whether this rank's optimizer has states."""
        return True

    def _is_my_turn(self, index: int) -> bool:
        """Whether this rank writes a parameter's elements that it holds: the share is its own, copies take turns."""
        return self._shared or is_my_turn(index, self._group.size(), self._group.rank())

    def _flatten(self, settings: DataParallelSettings) -> list[FlatBucket]:
        kind = settings.optimizer.kind
        options = LayoutOptions(
            self._group.size(),
            settings.bucket_bytes,
            alignment=BLOCK_ELEMENTS if kind is Kind.ADAM8BIT else ALIGNMENT,
            matrices_apart=kind is Kind.MUON,
        )
        numels = [local_of(parameter).numel() for parameter in self._parameters]
        buckets: list[FlatBucket] = []
        replaced: dict[nn.Parameter, nn.Parameter] = {}
        for layout in lay_out(self.records, numels, options):
            bucket, new = flatten(layout, self.records, self._parameters, self._dtype, self.meshes.tp)
            bucket.masters = self._own_masters(bucket)
            buckets.append(bucket)
            replaced |= new
        for module in self.modules:
            replace_parameters(module, replaced)
            settle_rest(module, self.meshes.device_type, self._dtype)
        self._parameters = []
        return buckets

    def _share(self, flat: Tensor) -> Tensor:
        """The part of a buffer that this rank's optimizer updates."""
        return shard_of(flat, self._group) if self._shared else flat

    def _own_masters(self, bucket: FlatBucket) -> Tensor:
        """This rank's share in fp32: of the weights themselves, or copied out of the whole masters."""
        share = self._share(bucket.masters)
        return share if bucket.weights is bucket.masters else share.clone()

    def _targets(self, index: int, settings: DataParallelSettings) -> list[Target]:
        """A bucket as the optimizer sees it: one flat tensor, or one tensor a parameter where shapes matter."""
        bucket, master = self._buckets[index], self._masters[index]
        gradient = self._host.gradients[index] if self._host else self._share(bucket.gradients)
        pairs = [(master, gradient)]
        matrices = None
        if settings.optimizer.kind is Kind.ADAFACTOR:
            pairs = list(zip(bucket.views(master), bucket.views(gradient), strict=True))
        if settings.optimizer.kind is Kind.MUON and bucket.records[0].is_matrix:
            group = self._matrix_group()
            matrices = BucketMatrices(bucket, self.meshes.tp, group, shared=self._shared)
        targets = [Target(nn.Parameter(values), matrices) for values, _ in pairs]
        for target, (_, own) in zip(targets, pairs, strict=True):
            target.parameter.grad = own
        return targets

    def _matrix_group(self) -> dist.ProcessGroup | None:
        """Ranks that divide the work on whole matrices between them."""
        return self._group if self._group.size() > 1 else None

    def _cast_inputs(self) -> None:
        """Images come in fp32; a chunk of bf16 weights takes them in bf16."""
        if self._dtype is torch.float32:
            return
        for module in self.modules:
            module.register_forward_pre_hook(_to_dtype(self._dtype))

    def _watch_gradients(self) -> None:
        """Count gradients as they come, so that a bucket's reduction starts when its last one is there."""
        if not self._overlap or self._group.size() == 1:
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
        if self._group.size() == 1:
            return
        start = reduce_scatter if self._shared else all_reduce
        self._works.append(start(bucket.gradients, self._group))

    def _finish_shares(self) -> None:
        shares = [self._share(bucket.gradients) for bucket in self._buckets]
        partial = [
            share for share, each in zip(shares, self._buckets, strict=True) if each.records[0].is_partial
        ]
        sum_coalesced(partial, self.meshes.tp_group)
        by_record = {each.records[0]: share for share, each in zip(shares, self._buckets, strict=True)}
        for tie in self.ties:
            sum_copies(tie, [by_record[record] for record in tie.records])

    def _final_gradients(self) -> list[tuple[Tensor, bool]]:
        shares = [self._share(bucket.gradients) for bucket in self._buckets]
        return list(zip(shares, self._counts, strict=True))

    def _norm_groups(self) -> list[dist.ProcessGroup]:
        data = [self._group] if self._shared else []
        return [*data, self.meshes.tp_group, self.meshes.pp_group]

    def _update(self) -> None:
        if self._host is not None:
            self._host.load_gradients([self._share(bucket.gradients) for bucket in self._buckets])
        self.optimizer.step()
        self.publish()

    def _full(self, flats: Sequence[Tensor]) -> dict[str, Tensor]:
        if self._shared:
            for work in [all_gather(flat, self._group) for flat in flats]:
                work.wait()
        found: dict[str, Tensor] = {}
        for bucket, flat in zip(self._buckets, flats, strict=True):
            found |= bucket.full(flat, self.meshes.tp)
        return found


def _to_dtype(dtype: torch.dtype) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    def cast(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            each.to(dtype) if isinstance(each, Tensor) and each.is_floating_point() else each
            for each in inputs
        )

    return cast
