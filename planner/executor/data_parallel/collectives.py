"""Collectives on flat tensors, under the names that the installed torch knows."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.torch_names import GATHER, REDUCE_SCATTER


def shard_of(flat: Tensor, group: dist.ProcessGroup) -> Tensor:
    """This rank's equal share of a flat tensor, as a view."""
    return flat.chunk(group.size())[group.rank()]


def all_reduce(flat: Tensor, group: dist.ProcessGroup) -> Any:
    """Start summing a tensor over the group, in place; returns the work to wait for."""
    return dist.all_reduce(flat, group=group, async_op=True)


def reduce_scatter(flat: Tensor, group: dist.ProcessGroup) -> Any:
    """Start summing a flat tensor, each rank's own share of it in place; returns the work to wait for.

    Gloo's reduce-scatter sums a whole copy of its input and keeps a share (ProcessGroupGloo.cpp), so there the plain
    all-reduce does the same without the copy.
    """
    if dist.get_backend(group) == dist.Backend.GLOO:
        return all_reduce(flat, group)
    return REDUCE_SCATTER(shard_of(flat, group), flat, group=group, async_op=True)


def all_gather(flat: Tensor, group: dist.ProcessGroup) -> Any:
    """Start filling a flat tensor from every rank's own share of it; returns the work to wait for."""
    return GATHER(flat, shard_of(flat, group), group=group, async_op=True)


def gather_rows(local: Tensor, rows: int, group: dist.ProcessGroup) -> Tensor:
    """The `rows` rows that a group's ranks hold in equal pieces, the last ones short or empty; a new tensor."""
    piece = -(-rows // group.size())
    padded = local.new_zeros((piece * group.size(), *local.shape[1:]))
    shard_of(padded, group)[: len(local)].copy_(local)
    if group.size() > 1:
        all_gather(padded, group).wait()
    return padded[:rows]


def sum_now(tensor: Tensor, group: dist.ProcessGroup) -> None:
    """Sum a tensor over the group, in place; one in the host's memory travels through a GPU where NCCL sums."""
    if tensor.device.type == "cpu" and dist.get_backend(group) == dist.Backend.NCCL:
        travelling = tensor.to("cuda")
        dist.all_reduce(travelling, group=group)
        tensor.copy_(travelling)
    else:
        dist.all_reduce(tensor, group=group)


def sum_coalesced(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum many small tensors over the group, in place, in one message per dtype."""
    if group.size() == 1:
        return
    for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        if len(alike) == 1 and alike[0].is_contiguous():
            sum_now(alike[0], group)
            continue
        flat = torch.cat([tensor.reshape(-1) for tensor in alike])
        sum_now(flat, group)
        parts = torch.split_with_sizes(flat, [tensor.numel() for tensor in alike])
        for tensor, part in zip(alike, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
