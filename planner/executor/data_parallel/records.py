"""What data parallelism must know of each parameter before it is wrapped, flattened or sharded."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement


@dataclass(frozen=True, slots=True, eq=False)
class ParameterRecord:
    """One parameter of one chunk, as the model was built: its global name and how tensor parallelism treats it."""

    name: str
    chunk: int
    shape: torch.Size
    """Full shape, over all tensor-parallel ranks."""
    tie: str
    """Name shared by every copy of the same parameter; empty for parameters of their own."""
    tp_placements: tuple[Placement, ...]
    """Placement on the tensor-parallel mesh; empty for plain tensors."""
    is_partial: bool
    """Replicated over tensor-parallel ranks, each of which holds a part of its gradient's sum."""
    rows: int
    """Rows of the model's own, where others pad a vocabulary; 0: all."""
    is_matrix: bool
    """A hidden layer's matrix: two dimensions, neither of them the vocabulary."""

    @property
    def is_tp_sharded(self) -> bool:
        """Whether tensor-parallel ranks hold different elements."""
        return any(placement.is_shard() for placement in self.tp_placements)


def describe(chunks: Sequence[nn.Module]) -> tuple[list[ParameterRecord], list[nn.Parameter]]:
    """Records and parameters of the chunks, in order; a parameter shared inside a chunk appears once."""
    pairs = [
        (_record(name, index, parameter, is_vocabulary=_is_vocabulary(parameter, sizes)), parameter)
        for index, (chunk, sizes) in enumerate(zip(chunks, map(_vocabularies, chunks), strict=True))
        for name, parameter in chunk.named_parameters()
        if parameter.requires_grad
    ]
    return [record for record, _ in pairs], [parameter for _, parameter in pairs]


def local_of(tensor: Tensor) -> Tensor:
    """The elements on this rank, sharing the tensor's storage, out of autograd's sight."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_of(local: Tensor, record: ParameterRecord, mesh: DeviceMesh) -> Tensor:
    """The whole tensor from tensor-parallel shards; collective over the mesh where there are any."""
    if not record.is_tp_sharded:
        return unpadded(local, record)
    whole = as_dtensor(local, record, mesh)
    return unpadded(whole.full_tensor(), record)


def as_dtensor(local: Tensor, record: ParameterRecord, mesh: DeviceMesh) -> DTensor:
    """A local tensor as this rank's part of the record's whole tensor, sharing its storage."""
    stride = torch.empty(record.shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, record.tp_placements, run_check=False, shape=record.shape, stride=stride
    )


def unpadded(whole: Tensor, record: ParameterRecord) -> Tensor:
    """The model's own rows of a whole tensor."""
    return whole[: record.rows] if record.rows else whole


def _is_vocabulary(parameter: nn.Parameter, sizes: set[int]) -> bool:
    return hasattr(parameter, "unpadded_rows") or parameter.shape[:1].numel() in sizes


def _vocabularies(chunk: nn.Module) -> set[int]:
    """Sizes of the token tables of a module that does not mark what is sharded by vocabulary."""
    return {part.num_embeddings for part in chunk.modules() if isinstance(part, nn.Embedding)}


def _record(name: str, chunk: int, parameter: nn.Parameter, *, is_vocabulary: bool) -> ParameterRecord:
    placements: tuple[Placement, ...] = ()
    if isinstance(parameter.data, DTensor):
        placements = tuple(parameter.data.placements)
    return ParameterRecord(
        name=name,
        chunk=chunk,
        shape=parameter.shape,
        tie=getattr(parameter, "tie_name", ""),
        tp_placements=placements,
        is_partial=getattr(parameter, "tensor_parallel_partial", False),
        rows=getattr(parameter, "unpadded_rows", 0),
        is_matrix=parameter.ndim == 2 and not is_vocabulary,
    )
