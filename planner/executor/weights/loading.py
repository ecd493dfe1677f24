"""Weights of a folder into a new trainer: every rank reads the boxes of tensors that its optimizer holds, no more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from torch import Tensor

from cost_models.errors import BadInput
from cost_models.fine_tuning import without_adapters
from planner.executor.checkpoint.pieces import boxes_of_held
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.weights.cuts import Source
from planner.executor.weights.match import Match, match
from planner.executor.weights.names import Naming, is_adapter
from planner.executor.weights.stored import Directory, has_weights, read_directory


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read, of all ranks."""

    path: str
    num_bytes: int
    """Of all tensors in the folder."""
    read_bytes: tuple[int, ...]
    """What each rank read."""
    dtypes: tuple[str, ...]
    ignored: tuple[str, ...]
    skipped: tuple[str, ...]

    def to_event(self) -> dict[str, object]:
        """A line of the run's events."""
        return {
            "event": "weights",
            "path": self.path,
            "bytes": self.num_bytes,
            "read_bytes": list(self.read_bytes),
            "dtypes": list(self.dtypes),
            "ignored": list(self.ignored),
            "skipped": list(self.skipped),
        }


class BoxReader:
    """Reads boxes of stored tensors and counts the bytes; a file is opened when something of it is asked for."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._open: dict[str, Any] = {}
        self.read_bytes = 0

    def fill(self, source: Source, offsets: tuple[int, ...], target: Tensor) -> None:
        """Fill a tensor with the box of the source's parameter that begins at the offsets."""
        for cut in source.cuts(offsets, tuple(target.shape)):
            target[cut.part].copy_(cut.to_part(self._box(cut.key, cut.stored)))

    def _box(self, key: str, box: tuple[slice, ...]) -> Tensor:
        file = self._directory.tensors[key].file
        if file not in self._open:
            self._open[file] = safe_open(str(self._directory.path / file), framework="pt")
        # Steps are taken here: files are read in whole runs.
        whole: Tensor = self._open[file].get_slice(key)[tuple(slice(each.start, each.stop) for each in box)]
        self.read_bytes += whole.numel() * whole.element_size()
        return whole[tuple(slice(None, None, each.step) for each in box)]


@torch.no_grad()
def load_weights(order: RunOrder, trainer: Trainer) -> Loaded | None:
    """Fill a new trainer from the folder that the options name; None where it has a config alone. Collective.

    Adapters keep their first values. Raises BadInput, on all ranks, where the folder does not fit the model.
    """
    if not has_weights(order.options.weights):
        return None
    directory, found = _agreed(order)
    reader = BoxReader(directory)
    fill(trainer, found.naming, reader)
    read: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(read, reader.read_bytes)
    dtypes = sorted({tensor.dtype for tensor in directory.tensors.values()})
    path = str(directory.path)
    return Loaded(path, directory.num_bytes, tuple(read), tuple(dtypes), found.ignored, found.skipped)


def fill(trainer: Trainer, naming: Naming, reader: BoxReader) -> None:
    """Read what this rank holds, and bring the weights in use up to date; collective."""
    data_parallel = trainer.data_parallel
    for held in [*data_parallel.held(), *data_parallel.frozen()]:
        name = held.record.name
        if is_adapter(name):
            continue
        for piece in boxes_of_held(name, held, held.values):
            reader.fill(naming.source(name, piece.shape), piece.offsets, piece.tensor)
    for name, buffer in data_parallel.buffers.items():
        reader.fill(naming.source(name, tuple(buffer.shape)), (0,) * buffer.dim(), buffer)
    data_parallel.publish()


def _agreed(order: RunOrder) -> tuple[Directory, Match]:
    """The folder as the first rank finds it, on every rank; collective."""
    said: list[tuple[Directory, Match] | str] = [""]
    if dist.get_rank() == 0:
        try:
            directory = read_directory(Path(order.options.weights))
            model = without_adapters(order.situation.model)
            said = [(directory, match(directory, model, predictions=order.predictions > 0))]
        except BadInput as error:
            said = [str(error)]
    dist.broadcast_object_list(said)
    if isinstance(said[0], str):
        raise BadInput(said[0])
    return said[0]
