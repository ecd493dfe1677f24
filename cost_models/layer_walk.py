"""One layer kind under one style: its kernels and messages in order, what it saves, and its highest instants.

Shapes: every number is a scalar or an array over the shard points U that are looked at together.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cost_models.dropped import PER_OP, Dropped, drop_per_operator
from cost_models.operators import CrossEntropy, Linear, LmHead
from cost_models.operators.base import (
    DtypeRole,
    Kernel,
    Message,
    Operator,
    Phase,
    Shard,
    Split,
    Style,
    Tensor,
    padded_vocabulary,
)
from cost_models.operators.curves import kernel_curves
from cost_models.operators.frozen import groups_of, kernels_of, messages_of, saved_of
from cost_models.operators.narrow import NARROW_SUFFIX
from cost_models.specs.model import LayerKind
from cost_models.units import Num

NORMS = "layernorm"
"""The scope whose operators are each recomputed on their own."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes of one layer for one micro-batch: kept until backward, and the highest instant above them.

    The instants of forward and backward of what the layer itself runs, and of the loss that stands behind it, are
    also told apart: sharded engines gather a layer's weights for the first two alone. `backward_bytes` counts the
    weight gradients made so far, whole and in the compute dtype.
    """

    saved_bytes: Num
    transient_bytes: Num
    forward_bytes: Num = 0.0
    backward_bytes: Num = 0.0
    behind_bytes: Num = 0.0


@dataclass(frozen=True, slots=True)
class LayerWalk:
    """Work of one layer kind; parallel tuples say which operators a base recompute runs again, and which can wait."""

    kernels: tuple[Kernel, ...]
    kernel_again: tuple[float, ...]  # share of the kernel that runs again
    messages: tuple[Message, ...]
    message_again: tuple[bool, ...]
    message_windows: tuple[tuple[int, ...], ...]  # kernels (indices) that a ring message can hide behind
    base: Saved
    full: Saved  # all blocks' recompute: the boundary tensor, and everything else as a transient
    loss_bytes: Num  # what the loss builds from this layer, beside the other layers'
    halfway_bytes: Num  # kept between an input gradient and a weight gradient that run apart
    kernel_waits: tuple[bool, ...]  # whether a kernel belongs to a weight gradient that can run apart
    spared: frozenset[str] = (
        frozenset()
    )  # operators that a full recompute which stops early does not run again
    boundary_bytes: Num = (
        0.0  # the tensor handed on, whose gradient comes back; nothing where no gradient does
    )
    idle: frozenset[str] = frozenset()  # operators without a backward, which no recompute runs again
    kernel_ops: tuple[str, ...] = ()  # the operator of each kernel
    message_ops: tuple[str, ...] = ()
    kernel_curves: tuple[str, ...] = ()  # the measured curve of each kernel
    modules: int = 0  # operators, each launched by the host
    regions: int = 0  # parts of the layer that a base recompute enters on their own


def walk_layer(kind: LayerKind, at: Shard, style: Style, scopes: tuple[str, ...]) -> LayerWalk:
    """Count one layer whose `scopes` are recomputed in the backward pass."""
    dropped = dropped_by(kind, scopes)
    kernels: list[Kernel] = []
    kernel_again: list[float] = []
    kernel_waits: list[bool] = []
    messages: list[Message] = []
    message_again: list[bool] = []
    windows: list[tuple[int, ...]] = []
    names: tuple[list[str], list[str], list[str]] = ([], [], [])
    kernel_ops, message_ops, curves = names
    loss: Num = 0.0
    for op in kind.operators:
        start = len(kernels)
        kernels += kernels_of(op, at, style)
        kernel_ops += [op.name] * (len(kernels) - start)
        curves += kernel_curves(op, kernels[start:])
        again = 0.0 if op.frozen == "whole" else dropped.share_again(op)
        kernel_again += [again] * (len(kernels) - start)
        kernel_waits += [can_wait(op) and k.phase is Phase.WEIGHT_GRADIENT for k in kernels[start:]]
        for message in messages_of(op, at, style):
            messages.append(message)
            message_ops.append(op.name)
            message_again.append(op.frozen != "whole" and dropped.moves_again(op))
            windows.append(tuple(i for i in range(start, len(kernels)) if kernels[i].phase == message.phase))
        loss = loss + op.loss_bytes(at, style)
    boundary = boundary_bytes(kind, at, style)
    base, recomputed = _saved_both_ways(kind, at, style, dropped)
    idle = all(op.frozen == "whole" for op in kind.operators)
    return LayerWalk(
        tuple(kernels),
        tuple(kernel_again),
        tuple(messages),
        tuple(message_again),
        tuple(_wide_windows(kernels, messages, windows)),
        base,
        recomputed,
        loss,
        halfway_bytes(kind.operators, at, style),
        tuple(kernel_waits),
        spared_by_early_stop(kind.operators, at, style),
        0.0 * boundary if idle else boundary,
        frozenset(op.name for op in kind.operators if op.frozen == "whole"),
        tuple(kernel_ops),
        tuple(message_ops),
        tuple(curves),
        len(kind.operators),
        regions_of(kind, scopes),
    )


def _wide_windows(
    kernels: list[Kernel], messages: list[Message], windows: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Exchanges of experts overlap with another micro-batch: the whole layer's kernels of their direction."""
    ways: list[tuple[int, ...]] = [
        tuple(i for i, kernel in enumerate(kernels) if (kernel.phase is Phase.FORWARD) is forward)
        for forward in (False, True)
    ]
    return [
        ways[message.phase is Phase.FORWARD] if message.overlap_class == "ep_dispatch" else window
        for message, window in zip(messages, windows, strict=True)
    ]


def spared_by_early_stop(operators: tuple[Operator, ...], at: Shard, style: Style) -> frozenset[str]:
    """Operators at a layer's end that nothing saved needs: a recompute stops when the last saved tensor is back.

    A matrix product saves what it reads, so the last one is spared too (torch.utils.checkpoint without re-entrance,
    `set_checkpoint_early_stop`).
    """
    spared: set[str] = set()
    for op in reversed(operators):
        keeps = any(np.any(np.asarray(tensor.elements) > 0) for tensor in saved_of(op, at, style))
        if keeps and not isinstance(op, Linear):
            break
        spared.add(op.name)
        if keeps:
            break
    return frozenset(spared)


def _saved_both_ways(kind: LayerKind, at: Shard, style: Style, dropped: Dropped) -> tuple[Saved, Saved]:
    """Bytes of a layer under its base recompute, and recomputed in full."""
    boundary = boundary_bytes(kind, at, style)
    none = _walk_memory(kind.operators, at, style, Dropped())
    base = _walk_memory(kind.operators, at, style, dropped) if dropped.again else none
    idle = all(op.frozen == "whole" for op in kind.operators)
    # The layer's input stands in for the gradient of its output: it is kept, and among what comes back.
    kept = checkpoint_bytes(boundary, at, style)
    back = none.saved_bytes + boundary - kept
    recomputed = Saved(
        0.0 * boundary if idle else kept,
        back + none.transient_bytes,
        back + none.forward_bytes,
        back + none.backward_bytes,
    )
    beside = Saved(
        base.saved_bytes,
        base.transient_bytes + boundary,
        base.forward_bytes,
        base.backward_bytes + boundary,
        base.behind_bytes,
    )
    return beside, recomputed


def dropped_by(kind: LayerKind, scopes: tuple[str, ...]) -> Dropped:
    """What the chosen scopes of a layer kind drop; `per_op` is a scope of every kind that has scopes."""
    if PER_OP in scopes and kind.scopes:
        return drop_per_operator(kind.operators)
    chosen = [scope for scope in kind.scopes if scope.name in scopes]
    again = frozenset(name for scope in chosen for name in scope.operators)
    return Dropped(again, frozenset(name for scope in chosen for name in scope.gives_up))


def regions_of(kind: LayerKind, scopes: tuple[str, ...]) -> int:
    """Parts of a layer that a base recompute runs again on their own: every norm, and one for each other scope."""
    chosen = [scope for scope in kind.scopes if scope.name in scopes]
    return sum(len(scope.operators) if scope.name == NORMS else 1 for scope in chosen)


def boundary_bytes(kind: LayerKind, at: Shard, style: Style) -> Num:
    """Bytes of the tensor handed to the next layer (and of its gradient) on one rank."""
    if kind.boundary_downsample:
        side = -(-at.image_size // kind.boundary_downsample)
        return at.sequences * float(side * side * kind.boundary_width) * style.compute_bytes
    return at.sp_tokens * float(kind.boundary_width) * style.compute_bytes


def checkpoint_bytes(boundary: Num, at: Shard, style: Style) -> Num:
    """Bytes of a recomputed layer's input that its rank keeps on the device."""
    if style.checkpoints_on_host:
        return 0.0 * boundary
    ways = at.tp / at.sp_ways if style.checkpoints_divided else 1.0
    return boundary / ways


def can_wait(op: Operator) -> bool:
    """Whether a split backward puts the operator's weight gradient off: linear layers and the head.

    All others make theirs with the input gradient, as planner/executor/weight_gradients.py does.
    """
    return isinstance(op, Linear | LmHead)


def halfway_bytes(operators: Iterable[Operator], at: Shard, style: Style) -> Num:
    """Bytes that waiting weight gradients hold: the layers' inputs, each once, and the gradients of their outputs.

    Zero-bubble schedules keep both from the input gradient to the weight gradient (Qi et al. 2023, section 2).
    """
    inputs: dict[str, Num] = {}
    gradients: Num = 0.0
    for op in operators:
        if not can_wait(op) or op.frozen:
            continue
        for tensor in op.saved(at, style):
            inputs[tensor.id] = np.maximum(inputs.get(tensor.id, 0.0), tensor_bytes(tensor, style))
        if isinstance(op, LmHead):
            gradients = gradients + at.tokens * padded_vocabulary(op.vocab_size, at.tp, style) / at.tp
        else:
            gradients = gradients + op.elements_out(at)
    return sum(inputs.values(), start=gradients * style.compute_bytes)


def tensor_bytes(tensor: Tensor, style: Style) -> Num:
    """Bytes of a saved tensor."""
    sizes = {
        DtypeRole.COMPUTE: style.compute_bytes,
        DtypeRole.FP32: 4.0,
        DtypeRole.INT64: 8.0,
        DtypeRole.BYTE: 1.0,
        DtypeRole.MASK: style.compute_bytes if style.cpu_kernels else 1.0,
        DtypeRole.NARROW: style.narrow_bytes,
    }
    return tensor.elements * sizes[tensor.dtype]


def saved_tensors(
    operators: Iterable[Operator], at: Shard, style: Style, dropped: Dropped
) -> Mapping[str, tuple[int, Num]]:
    """Id -> (index of the first operator that saves it, bytes) after the recomputed operators dropped theirs.

    A recomputed operator keeps only what comes from outside its scope; whatever an operator outside saves stays.
    """
    ops, again = tuple(operators), dropped.again
    produced = {name for op in ops if op.name in again for name in _outputs(op)}
    found: dict[str, tuple[int, Num]] = {}
    for index, op in enumerate(ops):
        # A frozen operator keeps no input for its weights, but one that runs again needs what comes from outside.
        runs_again = op.name in again and op.frozen == "weights"
        for tensor in op.saved(at, style) if runs_again else saved_of(op, at, style):
            inner = dropped.loses(tensor.id) and (tensor.id in produced or tensor.id.split(".")[0] in again)
            given_up = tensor.id.removesuffix(NARROW_SUFFIX) in dropped.given_up
            if given_up or (op.name in again and inner):
                continue
            first, old = found.get(tensor.id, (index, 0.0))
            size = tensor_bytes(tensor, style) * dropped.kept_shares.get(tensor.id, 1.0)
            found[tensor.id] = (first, np.maximum(old, size))
        if op.name in dropped.kept_outputs:
            found[op.name] = (index, op.elements_out(at) * style.compute_bytes)
    return found


def _outputs(op: Operator) -> tuple[str, ...]:
    return (op.name, *(part.name for part in op.parts)) if isinstance(op, Linear) else (op.name,)


def _walk_memory(operators: tuple[Operator, ...], at: Shard, style: Style, dropped: Dropped) -> Saved:
    """Saved bytes, and the maximum over operators of (their transient - tensors not alive at that point).

    Forward, tensors first saved by later operators do not exist yet; backward, they have been released: the same set.
    """
    tensors = saved_tensors(operators, at, style, dropped)
    total: Num = 0.0
    by_operator: dict[int, Num] = {}
    for first, size in tensors.values():
        total = total + size
        by_operator[first] = by_operator.get(first, 0.0) + size
    highest: Num = 0.0
    forward: Num = -np.inf
    backward: Num = -np.inf
    behind: Num = 0.0
    later: Num = 0.0
    gradients: Num = 0.0
    regrown = _regrown(operators, at, style, dropped)
    for index in range(len(operators) - 1, -1, -1):
        op = operators[index]
        transient = op.transient(at, style)
        here = np.maximum(transient.forward, transient.backward) + regrown - later
        highest = np.maximum(highest, here)
        if isinstance(op, CrossEntropy) and style.cross_entropy_chunks == 1:
            behind = np.maximum(behind, here)
        else:
            gradients = gradients + gradient_bytes(op, at, style)
            forward = np.maximum(forward, transient.forward - later)
            backward = np.maximum(backward, transient.backward + regrown + gradients - later)
        later = later + by_operator.get(index, 0.0)
    return Saved(total, highest, forward, backward, behind)


def gradient_bytes(op: Operator, at: Shard, style: Style) -> Num:
    """Bytes of an operator's weight gradients on one rank, in the compute dtype."""
    total: Num = 0.0
    for group in groups_of(op):
        if group.frozen:
            continue
        ways: Num = 1.0
        if group.split is Split.TP:
            ways = np.minimum(at.tp, group.max_shards) if group.max_shards else at.tp
        elif group.split is Split.VOCABULARY:
            ways = at.tp * (group.rows / padded_vocabulary(group.rows, at.tp, style))
        elif group.split is Split.EXPERT:
            ways = at.ep * at.etp
        total = total + group.elements / ways
    return total * style.compute_bytes


def _regrown(operators: tuple[Operator, ...], at: Shard, style: Style, dropped: Dropped) -> Num:
    """Bytes that come back while the recomputed operators run again before their backward."""
    if not dropped.again:
        return 0.0
    kept = saved_tensors(operators, at, style, dropped)
    every = saved_tensors(operators, at, style, Dropped())
    back: Num = 0.0
    for name, (_, size) in every.items():
        back = back + np.maximum(size - kept.get(name, (0, 0.0))[1], 0.0)
    return back
