"""Flat buffers under a model: parameters and their gradients become views of one buffer of each per bucket."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from planner.executor.data_parallel.layout import Bucket, Place
from planner.executor.data_parallel.records import ParameterRecord, as_dtensor, local_of, unpadded, whole_of
from planner.executor.precision import MASTER_DTYPE, REDUCE_DTYPE

COPIED_MARKS = ("tie_name", "tensor_parallel_partial", "unpadded_rows", "expert_parallel")
"""Attributes that a model sets on its parameters; a parameter that takes another's place keeps them."""


@dataclass(slots=True, eq=False)
class FlatBucket:
    """One bucket's buffers: weights in the compute dtype, gradients in fp32, both padded with zeros."""

    layout: Bucket
    records: tuple[ParameterRecord, ...]
    parameters: tuple[nn.Parameter, ...]
    weights: Tensor
    gradients: Tensor
    masters: Tensor
    """The weights in fp32: `weights` itself where it is fp32, else whole at first and cut to a share by the owner."""
    left: int = 0
    """Gradients of this step that are still to come."""

    def views(self, flat: Tensor) -> list[Tensor]:
        """Local tensors of the bucket's parameters in a buffer of its size."""
        return [
            flat[place.start : place.start + place.numel].view(local_of(parameter).shape)
            for place, parameter in zip(self.layout.places, self.parameters, strict=True)
        ]

    @property
    def expert(self) -> bool:
        """Whether it holds parameters of routed experts that stand apart."""
        return self.records[0].expert

    def full(self, flat: Tensor, mesh: DeviceMesh) -> dict[str, Tensor]:
        """Copies of the whole tensors in a buffer by global name; collective over the mesh that divides them."""
        pairs = zip(self.records, self.views(flat), strict=True)
        return {record.name: unpadded(whole_of(view, record, mesh), record).clone() for record, view in pairs}


def flatten(
    layout: Bucket,
    records: Sequence[ParameterRecord],
    parameters: Sequence[nn.Parameter],
    dtype: torch.dtype,
    mesh: DeviceMesh,
) -> tuple[FlatBucket, dict[nn.Parameter, nn.Parameter]]:
    """Move a bucket's parameters into buffers; also the parameters that must take the place of given ones.

    `mesh` is the one that divides them.
    """
    chosen = [parameters[place.index] for place in layout.places]
    masters = torch.zeros(layout.numel, dtype=MASTER_DTYPE, device=mesh.device_type)
    for place, parameter in zip(layout.places, chosen, strict=True):
        _slice(masters, place).copy_(local_of(parameter).reshape(-1))
    weights = masters.to(dtype)
    gradients = torch.zeros_like(masters, dtype=REDUCE_DTYPE)
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    moved = []
    for place, parameter in zip(layout.places, chosen, strict=True):
        pair = (_slice(weights, place), _slice(gradients, place))
        new = _move(parameter, *pair, record=records[place.index], mesh=mesh)
        if new is not parameter:
            replaced[parameter] = new
        moved.append(new)
    mine = tuple(records[place.index] for place in layout.places)
    return FlatBucket(layout, mine, tuple(moved), weights, gradients, masters), replaced


def replace_parameters(module: nn.Module, replaced: Mapping[nn.Parameter, nn.Parameter]) -> None:
    """Put parameters in the place of others, wherever a module holds them."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter in replaced:
                part._parameters[name] = replaced[parameter]


def settle_frozen(module: nn.Module, device_type: str, dtype: torch.dtype) -> None:
    """Bring parameters that are not trained to the device, in `dtype`; those without storage stay where they are."""
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            continue
        kept = dtype if parameter.is_floating_point() else parameter.dtype
        moved = parameter.data.to("meta" if parameter.is_meta else device_type, kept)
        if isinstance(parameter, DTensor):
            # Another one: the data of a DTensor that is there is its outside alone.
            replaced[parameter] = _marked(nn.Parameter(moved, requires_grad=False), parameter)
        else:
            parameter.data = moved
    replace_parameters(module, replaced)


def settle_buffers(module: nn.Module, device_type: str) -> None:
    """Bring buffers to the device."""
    for buffer in module.buffers():
        buffer.data = buffer.data.to(device_type)


def cast_inputs(modules: Sequence[nn.Module], dtype: torch.dtype) -> None:
    """Images come in fp32; a chunk of bf16 weights takes them in bf16."""
    if dtype is torch.float32:
        return

    def cast(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            each.to(dtype) if isinstance(each, Tensor) and each.is_floating_point() else each
            for each in inputs
        )

    for module in modules:
        module.register_forward_pre_hook(cast)


def _slice(flat: Tensor, place: Place) -> Tensor:
    return flat[place.start : place.start + place.numel]


def _marked(new: nn.Parameter, old: nn.Parameter) -> nn.Parameter:
    """A parameter that takes another's place, with what a model noted on that."""
    for mark in COPIED_MARKS:
        if hasattr(old, mark):
            setattr(new, mark, getattr(old, mark))
    return new


def _move(
    parameter: nn.Parameter, weights: Tensor, gradients: Tensor, *, record: ParameterRecord, mesh: DeviceMesh
) -> nn.Parameter:
    """The parameter with its data in `weights` and its gradient in `gradients`; a new one for a DTensor."""
    shape = local_of(parameter).shape
    weights, gradients = weights.view(shape), gradients.view(shape)
    if isinstance(parameter, DTensor):
        new = _marked(nn.Parameter(as_dtensor(weights, record, mesh)), parameter)
        gradients = as_dtensor(gradients, record, mesh)
    else:
        new = parameter
        new.data = weights
    if weights.dtype is not gradients.dtype:
        # Without this, autograd would give a bf16 parameter a bf16 gradient and sum micro-batches in bf16.
        new.grad_dtype = gradients.dtype
    new.grad = gradients
    return new
