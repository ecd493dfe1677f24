"""Which tensor stands where in the files of a folder that is written, before any is; safetensors headers. No torch."""

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.executor.weights.stored import ITEM_BYTES, SINGLE_FILE

ALIGNMENT: Final = 8
"""Bytes to which a header is filled up with spaces, so that what follows is aligned (safetensors, format)."""


@dataclass(frozen=True, slots=True)
class PlacedTensor:
    """A tensor to be written."""

    key: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Its bytes in the file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file, its tensors in the order of their bytes, and the rank that writes it."""

    name: str
    tensors: tuple[PlacedTensor, ...]
    writer: int

    @property
    def header(self) -> bytes:
        """What stands before the tensors' bytes."""
        table: dict[str, object] = {"__metadata__": {"format": "pt"}}
        start = 0
        for tensor in self.tensors:
            end = start + tensor.num_bytes
            offsets = [start, end]
            table[tensor.key] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
            start = end
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-len(text) % ALIGNMENT)
        return struct.pack("<Q", len(text)) + text


def plan_files(tensors: Sequence[PlacedTensor], shard_bytes: int, world: int) -> tuple[PlannedFile, ...]:
    """Files of at most so many bytes (a larger tensor has one alone), dealt to ranks far apart."""
    groups: list[list[PlacedTensor]] = []
    size = 0
    for tensor in tensors:
        if not groups or size + tensor.num_bytes > shard_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.num_bytes
    count = len(groups)
    names = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    names = [SINGLE_FILE] if count == 1 else names
    return tuple(
        PlannedFile(name, tuple(group), index * world // count if count < world else index % world)
        for index, (name, group) in enumerate(zip(names, groups, strict=True))
    )


def index_of(files: Iterable[PlannedFile]) -> dict[str, object]:
    """The index beside several files."""
    tensors = [(tensor, file.name) for file in files for tensor in file.tensors]
    table: Mapping[str, str] = {
        tensor.key: name for tensor, name in sorted(tensors, key=lambda each: each[0].key)
    }
    return {
        "metadata": {"total_size": sum(tensor.num_bytes for tensor, _ in tensors)},
        "weight_map": table,
    }


def turns(files: Sequence[PlannedFile]) -> list[tuple[PlannedFile, PlacedTensor]]:
    """All tensors, one of each file after the other, so that all writers have something to do."""
    longest = max((len(file.tensors) for file in files), default=0)
    return [
        (file, file.tensors[turn]) for turn in range(longest) for file in files if turn < len(file.tensors)
    ]
