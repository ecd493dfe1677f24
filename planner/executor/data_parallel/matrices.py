"""Whole matrices from their parts and back, for optimizers that cannot work on parts.

The work is divided: each data rank computes its turn of the matrices, and the results are summed with the zeros of the
others, which is exact.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard

from planner.executor.data_parallel.collectives import (
    all_gather,
    all_reduce,
    gather_rows,
    reduce_scatter,
    shard_of,
)
from planner.executor.data_parallel.flat import FlatBucket
from planner.executor.data_parallel.records import ParameterRecord, whole_of
from planner.executor.optimizers.target import MatrixFunction


class BucketMatrices:
    """Matrices that lie in a flat bucket, whole on every data rank or shared between them."""

    def __init__(
        self, bucket: FlatBucket, mesh: DeviceMesh, group: dist.ProcessGroup | None, *, shared: bool
    ) -> None:
        """`mesh` divides the matrices, `group` holds the same parts of them."""
        self._bucket = bucket
        self._mesh = mesh
        self._group = group
        self._shared = shared

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """This rank's share of the function of every matrix."""
        group, bucket = self._group, self._bucket
        flat = local
        if group is not None and self._shared:
            flat = local.new_empty(bucket.layout.numel)
            shard_of(flat, group).copy_(local)
            all_gather(flat, group).wait()
        result = torch.zeros_like(flat)
        pairs = zip(bucket.views(flat), bucket.views(result), strict=True)
        for index, (source, target) in enumerate(pairs):
            record = bucket.records[index]
            if group is None or index % group.size() == group.rank():
                target.copy_(own_part(function(whole_of(source, record, self._mesh)), record, self._mesh))
        if group is None:
            return result
        (reduce_scatter if self._shared else all_reduce)(result, group).wait()
        return shard_of(result, group) if self._shared else result


@dataclass(frozen=True, slots=True)
class Sharded:
    """How one parameter's local part is divided once more: over `group`, along dimension `dim`, into equal pieces, the
    last ones short or empty; `mesh` is what divides the parameter itself."""

    record: ParameterRecord
    mesh: DeviceMesh
    group: dist.ProcessGroup
    dim: int = 0

    @property
    def length(self) -> int:
        """Size of the local part along the dimension."""
        return part_shape(self.record, self.mesh)[self.dim]

    def gathered(self, piece: Tensor) -> Tensor:
        """The local part from this rank's piece; collective over the group."""
        return gather_rows(piece.movedim(self.dim, 0), self.length, self.group).movedim(0, self.dim)

    def whole(self, piece: Tensor) -> Tensor:
        """The whole tensor from this rank's piece; collective."""
        return whole_of(self.gathered(piece), self.record, self.mesh)


class RowMatrices:
    """One matrix whose rows (or another dimension) are divided over a group."""

    def __init__(self, sharded: Sharded, turn: int) -> None:
        self._sharded = sharded
        self._is_my_turn = turn % sharded.group.size() == sharded.group.rank()

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """This rank's rows of the function of the matrix."""
        sharded = self._sharded
        group, rows = sharded.group, local.movedim(sharded.dim, 0)
        piece = -(-sharded.length // group.size())
        result = rows.new_zeros((piece * group.size(), *rows.shape[1:]))
        part = sharded.gathered(local)
        if self._is_my_turn:
            found = function(whole_of(part, sharded.record, sharded.mesh))
            own = own_part(found, sharded.record, sharded.mesh)
            result[: sharded.length] = own.movedim(sharded.dim, 0)
        if group.size() > 1:
            reduce_scatter(result, group).wait()
        return shard_of(result, group)[: len(rows)].movedim(0, sharded.dim)


class WholeMatrices:
    """One matrix that every rank of a group has whole."""

    def __init__(self, group: dist.ProcessGroup | None, turn: int) -> None:
        self._group = group
        self._is_my_turn = group is None or turn % group.size() == group.rank()

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """The function of the matrix, computed on the rank whose turn it is."""
        result = torch.zeros_like(local, memory_format=torch.contiguous_format)
        if self._is_my_turn:
            result.copy_(function(local))
        if self._group is not None:
            all_reduce(result, self._group).wait()
        return result


def own_part(whole: Tensor, record: ParameterRecord, mesh: DeviceMesh) -> Tensor:
    """This rank's part of a whole matrix on the mesh that divides it."""
    for dim, placement in enumerate(record.tp_placements):
        if isinstance(placement, Shard):
            whole = whole.chunk(mesh.size(dim), placement.dim)[mesh.get_local_rank(dim)]
    return whole


def part_shape(record: ParameterRecord, mesh: DeviceMesh) -> tuple[int, ...]:
    """Shape of one rank's part of a matrix on the mesh that divides it."""
    shape = list(record.shape)
    for dim, placement in enumerate(record.tp_placements):
        if isinstance(placement, Shard):
            shape[placement.dim] //= mesh.size(dim)
    return tuple(shape)
