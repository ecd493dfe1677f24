"""The states of each optimizer by name, as tensors to be written and read: the optimizer's own, or copies of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adafactor, AdamW, Optimizer

from planner.executor.optimizers.adam8bit import BLOCK_ELEMENTS, Adam8bit, Quantized, code_table
from planner.executor.optimizers.muon import Muon

ADAMW_MOMENTS: Final = ("exp_avg", "exp_avg_sq")
MOMENTS_8BIT: Final[Mapping[str, bool]] = {"first": True, "second": False}
"""State of Adam8bit and whether it is signed."""
NAMES_8BIT: Final = {"first": "exp_avg", "second": "exp_avg_sq"}


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state of an optimizer's tensor: an element for each of the tensor's, or a whole of its own shape."""

    name: str
    tensor: Tensor
    elementwise: bool = True


def states_of(optimizer: Optimizer, target: nn.Parameter) -> list[StateTensor]:
    """All states of a target, zero where there are none yet; what is read into them counts after `settle`."""
    if isinstance(optimizer, Muon):
        inner = optimizer.adamw
        if target in optimizer.matrices:
            return [StateTensor("momentum", _zeros_in(optimizer.state[target], "momentum", target))]
        assert inner is not None
        return states_of(inner, target)
    state = optimizer.state[target]
    if isinstance(optimizer, SGD):
        return [StateTensor("momentum", _zeros_in(state, "momentum_buffer", target))]
    if isinstance(optimizer, Adam8bit):
        return [StateTensor(NAMES_8BIT[name], _values(state, name, target)) for name in MOMENTS_8BIT]
    if isinstance(optimizer, Adafactor):
        return [StateTensor(name, tensor, elementwise=False) for name, tensor in _factors(state, target)]
    if isinstance(optimizer, AdamW):
        return [StateTensor(name, _zeros_in(state, name, target)) for name in ADAMW_MOMENTS]
    raise TypeError(f"no checkpoint is written of {type(optimizer).__name__}")


def settle(optimizer: Optimizer, target: nn.Parameter, read: Mapping[str, Tensor], step: int) -> None:
    """Make what was read into the tensors of `states_of` the states after so many steps."""
    if isinstance(optimizer, Muon):
        if target not in optimizer.matrices and optimizer.adamw is not None:
            settle(optimizer.adamw, target, read, step)
        return
    state = optimizer.state[target]
    if isinstance(optimizer, Adam8bit):
        state["step"] = step
        for name, signed in MOMENTS_8BIT.items():
            state[name] = quantized(read[NAMES_8BIT[name]], signed=signed)
    elif isinstance(optimizer, AdamW | Adafactor):
        state["step"] = torch.tensor(float(step), dtype=torch.float32, device=target.device)


def quantized(values: Tensor, *, signed: bool) -> Quantized:
    """Blocks of the 8-bit codes nearest to the values; exactly those that the values were read from.

    A block's scale is its largest value, unless that stood on the most negative code, which is above -1.
    """
    flat = values.reshape(-1)
    blocks = -(-flat.numel() // BLOCK_ELEMENTS)
    padded = functional.pad(flat, (0, blocks * BLOCK_ELEMENTS - flat.numel())).view(blocks, BLOCK_ELEMENTS)
    found = Quantized.zeros(blocks, values.device, signed=signed)
    found.write(0, padded)
    if not signed or not blocks:
        return found
    table = code_table(signed, values.device)
    most = -padded.amin(1)
    is_negative = most > padded.amax(1)
    scales = torch.where(is_negative, most / -table[0], found.scales)
    other = Quantized(found.codes.clone(), scales, signed)
    between = (table[1:] + table[:-1]) / 2
    shares = padded / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    other.codes.copy_(torch.bucketize(shares, between).to(torch.uint8))
    is_better = (other.read(0, blocks) - padded).abs().sum(1) < (found.read(0, blocks) - padded).abs().sum(1)
    found.codes[is_better], found.scales[is_better] = other.codes[is_better], other.scales[is_better]
    return found


def _zeros_in(state: dict[str, Any], name: str, target: nn.Parameter) -> Tensor:
    found = state.get(name)
    if not isinstance(found, Tensor):
        found = state[name] = torch.zeros_like(target, memory_format=torch.contiguous_format)
    return found


def _values(state: dict[str, Any], name: str, target: nn.Parameter) -> Tensor:
    """A copy of an 8-bit moment in fp32."""
    found = state.get(name)
    if found is None:
        return torch.zeros_like(target)
    assert isinstance(found, Quantized)
    return found.read(0, len(found.codes)).view(-1)[: target.numel()].view_as(target)


def _factors(state: dict[str, Any], target: nn.Parameter) -> list[tuple[str, Tensor]]:
    """Adafactor's sums over rows and columns, or its whole second moment of a vector."""
    if target.dim() <= 1:
        return [("variance", _zeros_in(state, "variance", target))]
    shapes = {"row_var": (*target.shape[:-1], 1), "col_var": (*target.shape[:-2], 1, target.shape[-1])}
    for name, shape in shapes.items():
        if name not in state:
            state[name] = target.new_zeros(shape)
    return [(name, state[name]) for name in shapes]
