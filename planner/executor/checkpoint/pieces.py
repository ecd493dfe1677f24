"""What one rank holds of the global tensors of a run: parameters, optimizer states, buffers, random number states."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from planner.executor.checkpoint.boxes import Box, boxes_of
from planner.executor.checkpoint.random_states import random_states
from planner.executor.checkpoint.states import StateTensor, settle, states_of
from planner.executor.data_parallel.base import DataParallel
from planner.executor.data_parallel.held import Held
from planner.executor.data_parallel.records import ParameterRecord

MODEL = "model"
OPTIMIZER = "optimizer"
BUFFER = "buffer"


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a global tensor; `tensor` has the box's sizes, and shares storage with what it was taken from."""

    key: str
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    tensor: Tensor
    writes: bool
    """Whether this rank writes it: every element of a checkpoint is written once."""


class RankState:
    """Everything of a rank that a checkpoint holds, to be written, or to be read into.

    Tensors are the live ones where there are such; `settle` makes what was read into copies count.
    """

    def __init__(self, data_parallel: DataParallel) -> None:
        self._data_parallel = data_parallel
        self._held = data_parallel.held()
        self._frozen = data_parallel.frozen()
        # Many parameters may lie in one tensor of the optimizer, whose states are then taken once.
        self._states: dict[nn.Parameter, list[StateTensor]] = {}
        for held in self._held:
            if held.updates and held.target not in self._states:
                self._states[held.target] = states_of(data_parallel.optimizer, held.target)

    def pieces(self) -> Iterator[Piece]:
        """Parameters, states and buffers; not the random number states, which another layout does not have."""
        for held in self._frozen:
            yield from boxes_of_held(f"{MODEL}/{key_of(held.record)}", held, held.values)
        for held in self._held:
            key = key_of(held.record)
            yield from boxes_of_held(f"{MODEL}/{key}", held, held.values)
            for state in self._states.get(held.target, ()):
                if state.elementwise:
                    yield from boxes_of_held(f"{OPTIMIZER}/{state.name}/{key}", held, held.of(state.tensor))
                else:
                    yield _whole(f"{OPTIMIZER}/{state.name}/{key}", state.tensor, writes=held.writes)
        for name, buffer in self._data_parallel.buffers.items():
            yield _whole(f"{BUFFER}/{name}", buffer.detach(), writes=self._writes_buffers())

    def random_pieces(self) -> list[Piece]:
        """States of the random number generators; data- and pipeline-parallel ranks have their own."""
        meshes = self._data_parallel.meshes
        writes = meshes.at.tp == 0
        return [_whole(key, state, writes=writes) for key, state in random_states(meshes).items()]

    def settle(self, step: int) -> None:
        """Make what was read count: states after so many steps, and the weights in use; collective."""
        for target, states in self._states.items():
            read = {state.name: state.tensor for state in states}
            settle(self._data_parallel.optimizer, target, read, step)
        self._data_parallel.publish()

    def _writes_buffers(self) -> bool:
        meshes = self._data_parallel.meshes
        return meshes.at.tp == 0 and meshes.data_rank == 0


def key_of(record: ParameterRecord) -> str:
    """A parameter's name whatever the layout: copies of one parameter have one name."""
    return f"tied:{record.tie}" if record.tie else record.name


def shape_of(record: ParameterRecord) -> tuple[int, ...]:
    """The model's own shape, without the rows that a layout adds to a vocabulary."""
    shape = tuple(record.shape)
    return (record.rows, *shape[1:]) if record.rows else shape or (1,)


def boxes_of_held(key: str, held: Held, values: Tensor) -> Iterator[Piece]:
    """The boxes of a global tensor that the held elements are."""
    shape, sizes, offsets = shape_of(held.record), held.part.sizes or (1,), held.part.offsets or (0,)
    for box in boxes_of(sizes, held.first, held.first + held.numel):
        at = tuple(own + base for own, base in zip(box.offsets, offsets, strict=True))
        tensor = _of_box(values, box, held.first)[: max(shape[0] - at[0], 0)]
        if tensor.numel():
            yield Piece(key, shape, at, tensor, held.writes)


def _of_box(values: Tensor, box: Box, first: int) -> Tensor:
    return values[box.first - first : box.first - first + box.numel].view(box.sizes)


def _whole(key: str, tensor: Tensor, *, writes: bool) -> Piece:
    tensor = tensor if tensor.dim() else tensor.view(1)
    return Piece(key, tuple(tensor.shape), (0,) * tensor.dim(), tensor, writes)
