"""Parameters with several copies, such as an input embedding and an output head on two pipeline ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from planner.executor.data_parallel.collectives import sum_now
from planner.executor.data_parallel.records import ParameterRecord
from planner.executor.mesh import Meshes


@dataclass(frozen=True, slots=True)
class Tie:
    """Copies of one parameter on this pipeline: which records hold them here, and with whom they are summed."""

    name: str
    records: tuple[ParameterRecord, ...]
    group: dist.ProcessGroup | None
    """Pipeline ranks that hold copies; None where all are on this rank."""
    is_owner: bool
    """Whether this rank counts the parameter in the norm: the first pipeline rank that holds it."""


def find_ties(records: Sequence[ParameterRecord], meshes: Meshes) -> tuple[Tie, ...]:
    """Ties with copies on this rank; collective over the pipeline, whose ranks tell each other what they hold."""
    mine: dict[str, list[ParameterRecord]] = {}
    for record in records:
        if record.tie:
            mine.setdefault(record.tie, []).append(record)
    held: list[list[str]] = [[] for _ in range(meshes.pp.size())]
    if len(held) > 1:
        dist.all_gather_object(held, sorted(mine), group=meshes.pp_group)
    else:
        held = [sorted(mine)]
    holders = {
        name: tuple(rank for rank, names in enumerate(held) if name in names)
        for name in sorted({name for names in held for name in names})
    }
    groups = {ranks: _group(ranks, meshes) for ranks in sorted(set(holders.values())) if len(ranks) > 1}
    return tuple(
        Tie(name, tuple(copies), groups.get(holders[name]), holders[name][0] == meshes.at.pp)
        for name, copies in sorted(mine.items())
        if len(copies) > 1 or len(holders[name]) > 1
    )


def counted_here(record: ParameterRecord, ties: Sequence[Tie], meshes: Meshes) -> bool:
    """Whether this rank counts the parameter in sums over pipeline ranks and those that divide it: each once."""
    if not _first_of_copies(record, meshes):
        return False
    tie = next((tie for tie in ties if tie.name == record.tie), None)
    return tie is None or (tie.is_owner and tie.records[0] is record)


def _first_of_copies(record: ParameterRecord, meshes: Meshes) -> bool:
    """Whether no rank before this one, of those among which the parameter is divided, holds the same part."""
    if not record.expert:
        return record.is_tp_sharded or meshes.at.tp == 0
    mesh = meshes.model_mesh(expert=True)
    return all(
        placement.is_shard() or mesh.get_local_rank(dim) == 0
        for dim, placement in enumerate(record.tp_placements)
    )


def sum_copies(tie: Tie, gradients: Sequence[Tensor]) -> None:
    """Give every copy the sum of the gradients of all copies, in place; collective over the tie's group."""
    total = gradients[0]
    for gradient in gradients[1:]:
        total += gradient
    if tie.group is not None:
        sum_now(total, tie.group)
    for gradient in gradients[1:]:
        gradient.copy_(total)


def _group(holders: tuple[int, ...], meshes: Meshes) -> dist.ProcessGroup | None:
    """The group of the pipeline ranks in this rank's column; only its members take part in making it."""
    if meshes.at.pp not in holders:
        return None
    column = dist.get_process_group_ranks(meshes.pp_group)
    group: dist.ProcessGroup = dist.new_group([column[pp] for pp in holders], use_local_synchronization=True)
    return group
