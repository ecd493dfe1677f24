"""What is left of an operator whose weights are not trained: no weight gradient, and no input kept for one.

An operator frozen `whole` has nothing trained below it either: no gradient passes, and nothing is kept.
"""

from dataclasses import replace

from cost_models.operators.base import (
    Kernel,
    KernelKind,
    Message,
    Operator,
    ParameterGroup,
    Phase,
    Shard,
    Style,
    Tensor,
)
from cost_models.operators.convolution import Conv2d
from cost_models.operators.embedding import Embedding
from cost_models.operators.linear import Linear
from cost_models.operators.loss import LmHead
from cost_models.operators.moe import GroupedLinear

KEEPS_FOR_WEIGHTS = (Linear, GroupedLinear, LmHead, Conv2d, Embedding)
"""Operators that keep their input for nothing but the gradient of their weights."""


def groups_of(op: Operator) -> tuple[ParameterGroup, ...]:
    """Parameter groups, marked frozen and with the bytes of quantised matrices."""
    if not op.frozen:
        return op.parameters()
    return tuple(
        replace(group, frozen=True, storage_bytes=op.storage_bytes if group.matrix else 0.0)
        for group in op.parameters()
    )


def kernels_of(op: Operator, at: Shard, style: Style) -> tuple[Kernel, ...]:
    """Kernels that run; quantised weights are unpacked before the forward product and again before the backward."""
    kernels = tuple(kernel for kernel in op.kernels(at, style) if _runs(op, kernel.phase))
    if not op.storage_bytes:
        return kernels
    elements = sum(group.elements for group in op.parameters() if group.matrix)
    local = elements / (at.ep * at.etp if isinstance(op, GroupedLinear) else at.tp)
    moved = local * (op.storage_bytes + style.compute_bytes)
    phases = (Phase.FORWARD, Phase.INPUT_GRADIENT)
    return kernels + tuple(Kernel(phase, KernelKind.MEMORY, 0.0, moved) for phase in phases)


def messages_of(op: Operator, at: Shard, style: Style) -> tuple[Message, ...]:
    """Messages that are sent."""
    return tuple(message for message in op.messages(at, style) if _runs(op, message.phase))


def saved_of(op: Operator, at: Shard, style: Style) -> tuple[Tensor, ...]:
    """Tensors kept until backward."""
    if op.frozen == "whole" or (op.frozen and isinstance(op, KEEPS_FOR_WEIGHTS)):
        return ()
    return op.saved(at, style)


def step_flops_share(op: Operator) -> float:
    """Model FLOPs of a step over those of the forward pass: 3, or 2 without weight gradients, 1 without backward."""
    if op.frozen == "whole":
        return 1.0
    return 2.0 if op.frozen and op.parameters() else 3.0


def _runs(op: Operator, phase: Phase) -> bool:
    if op.frozen == "whole":
        return phase is Phase.FORWARD
    return not op.frozen or phase is not Phase.WEIGHT_GRADIENT
