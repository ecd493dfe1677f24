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
    """Placements on the mesh that divides it (`Meshes.model_mesh`); empty for plain tensors."""
    is_partial: bool
    """Replicated over tensor-parallel (for an expert: expert-tensor-parallel) ranks, each of which holds a part of its
    gradient's sum."""
    rows: int
    """Rows of the model's own, where others pad a vocabulary; 0: all."""
    is_matrix: bool
    """A hidden layer's matrix, stack of matrices or convolution; not what stands in a table or a head."""
    expert: bool = False
    """Of routed experts that stand apart: divided over (ep, etp), summed over expert data parallel ranks."""

    @property
    def is_tp_sharded(self) -> bool:
        """Whether tensor-parallel ranks hold different elements."""
        return any(placement.is_shard() for placement in self.tp_placements)


def describe(
    chunks: Sequence[nn.Module], *, trained: bool = True
) -> tuple[list[ParameterRecord], list[nn.Parameter]]:
    """Records and parameters of the chunks that are trained (or those that are not), in order; a parameter shared
    inside a chunk appears once."""
    pairs = [
        (_record(name, index, parameter, is_table=parameter in tables), parameter)
        for index, (chunk, tables) in enumerate(zip(chunks, map(_tables, chunks), strict=True))
        for name, parameter in chunk.named_parameters()
        if parameter.requires_grad is trained
    ]
    return [record for record, _ in pairs], [parameter for _, parameter in pairs]


def local_of(tensor: Tensor) -> Tensor:
    """The elements on this rank, sharing the tensor's storage, out of autograd's sight."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_of(local: Tensor, record: ParameterRecord, mesh: DeviceMesh) -> Tensor:
    """The whole tensor from the parts on the mesh that divides it; collective over it where there are any."""
    return as_dtensor(local, record, mesh).full_tensor() if record.is_tp_sharded else local


def as_dtensor(local: Tensor, record: ParameterRecord, mesh: DeviceMesh) -> DTensor:
    """A local tensor as this rank's part of the record's whole tensor, sharing its storage."""
    stride = torch.empty(record.shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, record.tp_placements, run_check=False, shape=record.shape, stride=stride
    )


def unpadded(whole: Tensor, record: ParameterRecord) -> Tensor:
    """The model's own rows of a whole tensor."""
    return whole[: record.rows] if record.rows else whole


def _tables(chunk: nn.Module) -> set[nn.Parameter]:
    """Parameters of embeddings and heads.

    Those beside a parameter that is padded by vocabulary; where a module has torch's own embeddings, those and whatever
    is as long as one of them.
    """
    own = [set(part.parameters(recurse=False)) for part in chunk.modules()]
    found = {
        p for parameters in own if any(hasattr(p, "unpadded_rows") for p in parameters) for p in parameters
    }
    theirs = {p for part in chunk.modules() if isinstance(part, nn.Embedding) for p in part.parameters()}
    lengths = {len(table) for table in theirs}
    return found | theirs | {p for p in chunk.parameters() if p.ndim > 1 and len(p) in lengths}


def _record(name: str, chunk: int, parameter: nn.Parameter, *, is_table: bool) -> ParameterRecord:
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
        is_matrix=parameter.ndim > 1 and not is_table,
        expert=getattr(parameter, "expert_parallel", False),
    )
