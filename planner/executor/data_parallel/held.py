"""Which elements of which global tensors the optimizer of one rank updates: what a checkpoint is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from planner.executor.data_parallel.records import ParameterRecord, local_of
from planner.executor.mesh import Meshes


@dataclass(frozen=True, slots=True)
class Part:
    """The box of a whole tensor that one model-parallel rank holds before data ranks share it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Elements of one parameter in a tensor that this rank's optimizer updates.

    `values` is flat: elements [first, first + numel) of the flattened `part`, in fp32, sharing the target's storage.
    """

    record: ParameterRecord
    part: Part
    target: nn.Parameter
    start: int
    """Place of the first element in the flattened target."""
    first: int
    numel: int
    updates: bool = True
    """Whether this rank has optimizer states of it."""
    writes: bool = True
    """Whether a checkpoint takes it from this rank: each element is written once."""

    @property
    def values(self) -> Tensor:
        """The elements, as a view."""
        return self.of(self.target.detach())

    def of(self, like_target: Tensor) -> Tensor:
        """The parameter's elements in a tensor of the target's elements, as a view."""
        return like_target.view(-1)[self.start : self.start + self.numel]


def part_of(record: ParameterRecord, meshes: Meshes) -> Part:
    """This rank's box of a parameter: the ranks of the mesh that divides it hold equal pieces along its dimensions."""
    offsets, sizes = [0] * len(record.shape), list(record.shape)
    mesh = meshes.model_mesh(expert=record.expert)
    for place, placement in enumerate(record.tp_placements):
        if placement.is_shard():
            dim = placement.dim  # type: ignore[attr-defined]
            sizes[dim] //= mesh.size(place)
            offsets[dim] = sizes[dim] * mesh.get_local_rank(place)
    return Part(tuple(offsets), tuple(sizes))


def whole_held(record: ParameterRecord, parameter: nn.Parameter, meshes: Meshes) -> Held:
    """All of a parameter that no optimizer has, as this model-parallel rank holds it."""
    if not isinstance(parameter, DTensor):
        parameter.data = parameter.data.contiguous()
    own = nn.Parameter(local_of(parameter), requires_grad=False)
    return Held(record, part_of(record, meshes), own, 0, 0, own.numel(), updates=False)


def is_my_turn(index: int, ranks: int, rank: int) -> bool:
    """Whether this of several ranks with the same tensors writes the one of this index: they take turns."""
    return index % ranks == rank


def overlap(span: tuple[int, int], place: tuple[int, int]) -> tuple[int, int]:
    """Start and stop of what two spans have in common; start >= stop where it is nothing."""
    return max(span[0], place[0]), min(span[1], place[1])


def persistent_buffers(chunks: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Buffers that belong to the state of the chunks, by global name; those that can be made anew are left out."""
    return {
        f"{prefix}.{name}" if prefix else name: buffer
        for chunk in chunks
        for prefix, part in chunk.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and name not in part._non_persistent_buffers_set
    }
