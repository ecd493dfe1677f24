"""torch.distributed.checkpoint told in boxes: what a rank writes, and what it reads of whatever was written.

torch's own planners know plain tensors and DTensors; a rank's share of a flat buffer is neither.
"""

import errno
import io
import math
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from cost_models.errors import BadInput
from cost_models.units import format_bytes
from planner.executor.checkpoint.pieces import MODEL, Piece


class PieceWriter(DefaultSavePlanner):
    """Writes the pieces that this rank writes; the first rank checks that each element is there exactly once."""

    def __init__(self, pieces: Sequence[Piece], folder: Path) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._pieces = {MetadataIndex(piece.key, piece.offsets): piece for piece in pieces}
        self._folder = folder
        self.model_elements = 0
        """Elements of all parameters, known to the first rank once the plan is made."""

    def create_local_plan(self) -> SavePlan:
        """One item a piece."""
        self.plan = SavePlan([_write_item(index, piece) for index, piece in self._pieces.items()])
        return self.plan

    def create_global_plan(self, all_plans: list[SavePlan]) -> tuple[list[SavePlan], Metadata]:
        """The plans as they are, checked; raises OSError where the disk has no room for them."""
        plans, metadata = super().create_global_plan(all_plans)
        needed = sum(_stored_bytes(found) for found in metadata.state_dict_metadata.values())
        free = shutil.disk_usage(self._folder).free
        if free < needed:
            detail = f"a checkpoint needs {format_bytes(needed)}, and {format_bytes(free)} are free"
            raise OSError(errno.ENOSPC, detail, str(self._folder))
        self.model_elements = sum(
            math.prod(found.size)
            for key, found in metadata.state_dict_metadata.items()
            if key.startswith(f"{MODEL}/") and isinstance(found, TensorStorageMetadata)
        )
        return plans, metadata

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The piece's elements."""
        return self._pieces[write_item.index].tensor


class PieceReader(LoadPlanner):
    """Reads pieces from whatever boxes were written of their tensors."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._by_key: dict[str, list[Piece]] = defaultdict(list)
        for piece in pieces:
            self._by_key[piece.key].append(piece)
        self._metadata: Metadata | None = None

    def set_up_planner(
        self, state_dict: dict[str, Any], metadata: Metadata | None = None, is_coordinator: bool = False
    ) -> None:
        """Called by torch: what the checkpoint holds."""
        self._metadata = metadata

    def create_local_plan(self) -> LoadPlan:
        """Reads of every box that has elements of a piece; raises BadInput where some have none."""
        assert self._metadata is not None
        stored = self._metadata.state_dict_metadata
        items: list[ReadItem] = []
        for key, pieces in self._by_key.items():
            found = stored.get(key)
            _check(key, pieces[0], found)
            assert isinstance(found, TensorStorageMetadata)
            chunks = [_chunk(piece) for piece in pieces]
            reads = create_read_items_for_chunk_list(key, found, chunks)
            wanted, read = sum(p.tensor.numel() for p in pieces), sum(math.prod(r.lengths) for r in reads)
            if wanted != read:
                raise BadInput(
                    f"the checkpoint holds {read:,} of {wanted:,} elements of {key}; take another one"
                )
            items += reads
        return LoadPlan(items)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """Ranks read for themselves."""
        return global_plan

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """As it is."""
        return central_plan

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Never called: everything is a tensor."""
        raise BadInput(f"{read_item.dest_index.fqn} of the checkpoint is no tensor; take another one")

    def resolve_tensor(self, read_item: ReadItem) -> Tensor:
        """The part of a piece that an item fills."""
        index = read_item.dest_index
        assert index.index is not None
        tensor = self._by_key[index.fqn][index.index].tensor
        for dim, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths, strict=True)):
            tensor = tensor.narrow(dim, start, length)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: Tensor) -> None:
        """Nothing to do: the piece's own storage was filled."""


def _check(key: str, piece: Piece, found: object) -> None:
    if not isinstance(found, TensorStorageMetadata):
        raise BadInput(f"the checkpoint holds no {key}; it is of another model or optimizer")
    if tuple(found.size) != piece.shape:
        raise BadInput(
            f"{key} is {tuple(found.size)} in the checkpoint and {piece.shape} in the model; it is of another model"
        )


def _write_item(index: MetadataIndex, piece: Piece) -> WriteItem:
    properties = TensorProperties.create_from_tensor(piece.tensor)
    data = TensorWriteData(chunk=_chunk(piece), properties=properties, size=torch.Size(piece.shape))
    return WriteItem(index=index, type=WriteItemType.SHARD, tensor_data=data)


def _chunk(piece: Piece) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(offsets=torch.Size(piece.offsets), sizes=piece.tensor.shape)


def _stored_bytes(found: object) -> int:
    assert isinstance(found, TensorStorageMetadata)
    return math.prod(found.size) * found.properties.dtype.itemsize
