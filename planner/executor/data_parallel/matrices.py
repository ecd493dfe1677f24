"""Whole matrices from their parts and back, for optimizers that cannot work on parts.

The work is divided: each data rank computes its turn of the matrices, and the results are summed with the zeros of the
others, which is exact.
"""

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
        self, bucket: FlatBucket, tp: DeviceMesh, group: dist.ProcessGroup | None, *, shared: bool
    ) -> None:
        self._bucket = bucket
        self._tp = tp
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
                target.copy_(tp_part(function(whole_of(source, record, self._tp)), record, self._tp))
        if group is None:
            return result
        (reduce_scatter if self._shared else all_reduce)(result, group).wait()
        return shard_of(result, group) if self._shared else result


class RowMatrices:
    """One matrix whose rows are divided over a group in equal pieces, the last ones short or empty."""

    def __init__(
        self, record: ParameterRecord, rows: int, tp: DeviceMesh, group: dist.ProcessGroup, turn: int
    ) -> None:
        self._record = record
        self._rows = rows
        self._tp = tp
        self._group = group
        self._is_my_turn = turn % group.size() == group.rank()

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """This rank's rows of the function of the matrix."""
        group = self._group
        result = local.new_zeros((-(-self._rows // group.size()) * group.size(), *local.shape[1:]))
        whole = gather_rows(local, self._rows, group)
        if self._is_my_turn:
            found = function(whole_of(whole, self._record, self._tp))
            result[: self._rows] = tp_part(found, self._record, self._tp)
        if group.size() > 1:
            reduce_scatter(result, group).wait()
        return shard_of(result, group)[: len(local)]


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


def tp_part(whole: Tensor, record: ParameterRecord, tp: DeviceMesh) -> Tensor:
    """The tensor-parallel rank's part of a whole matrix."""
    for placement in record.tp_placements:
        if isinstance(placement, Shard):
            return whole.chunk(tp.size(), placement.dim)[tp.get_local_rank()]
    return whole


def tp_rows(record: ParameterRecord, tp: DeviceMesh) -> int:
    """Rows of the tensor-parallel rank's part of a matrix."""
    return record.shape[0] // (tp.size() if Shard(0) in record.tp_placements else 1)
