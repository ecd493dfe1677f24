"""Linear layers whose weight gradient can wait: what a split backward leaves for later.

With y = x W', a backward makes dx = dy W, which the stage before waits for, and dW = dy' x, which nobody waits for
(Qi et al. 2023, arXiv 2401.10241, section 2).  While `deferring`, a linear layer makes dx only and keeps (x, dy); all
else that its backward needs is freed as usual.  Biases, norms and the like get their gradients with dx: they cost
next to nothing.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Waiting:
    """One weight gradient to come: the layer's weight, input [..., in] and output gradient [..., out]."""

    weight: Tensor
    x: Tensor
    gradient: Tensor

    def made(self) -> Tensor:
        """The product dy' x."""
        rows = self.gradient.reshape(-1, self.gradient.shape[-1])
        return rows.t() @ self.x.reshape(-1, self.x.shape[-1])


@dataclass(slots=True, eq=False)
class WeightGradients:
    """Weight gradients that one chunk's layers have put off.

    `deferring` must be the same in the forward of a micro-batch and in its backward.
    """

    deferring: bool = False
    waiting: list[Waiting] = field(default_factory=list)

    def take(self) -> list[Waiting]:
        """What was put off since the last call."""
        taken, self.waiting = self.waiting, []
        return taken


def add_weight_gradients(waiting: list[Waiting]) -> None:
    """Make the gradients, in the order of the backward, and add each to its parameter's; empties the list.

    A weight of several layers (a head that predicts further tokens too) gets one gradient, as in a whole backward.
    """
    by_parameter: dict[int, list[Waiting]] = {}
    for each in waiting:
        by_parameter.setdefault(id(_parameter(each.weight)), []).append(each)
    waiting.clear()
    for alike in by_parameter.values():
        weights = tuple(each.weight for each in alike)
        made = tuple(each.made() for each in alike)
        alike.clear()
        # Through autograd, so that hooks of the parameter run and a tensor-parallel part finds its parameter.
        torch.autograd.backward(weights, made)


def _parameter(weight: Tensor) -> Tensor:
    """The parameter that a weight is, or is the local part of."""
    if weight.grad_fn is None:
        return weight
    found: Tensor = getattr(weight.grad_fn.next_functions[0][0], "variable", weight)
    return found


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, gradients: WeightGradients | None) -> Tensor:
    """X W' + b, the weight's gradient put off where `gradients` says so."""
    if gradients is None or not gradients.deferring or not weight.requires_grad:
        return functional.linear(x, weight, bias)
    found: Tensor = _Deferred.apply(x, weight.detach(), bias, (weight, gradients))  # type: ignore[no-untyped-call]
    return found


def attach(module: nn.Module, gradients: WeightGradients) -> None:
    """Let every layer in the module that can put its weight gradient off do so: `CanDefer`s and torch's own linears."""
    for part in module.modules():
        if isinstance(part, CanDefer):
            part.weight_gradients = gradients
        elif isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward:
            # An instance's attribute: the class, which FSDP2 may have replaced, stays as it is.
            part.forward = partial(_forward, part, gradients)  # type: ignore[method-assign]


def _forward(layer: nn.Linear, gradients: WeightGradients, x: Tensor) -> Tensor:
    if isinstance(
        layer.weight, DTensor
    ):  # sharded by torch's own tensor parallelism, which sees whole operators
        return functional.linear(x, layer.weight, layer.bias)
    return linear(x, layer.weight, layer.bias, gradients)


class CanDefer(nn.Module):
    """A module that calls `linear` with its `weight_gradients`."""

    weight_gradients: WeightGradients | None = None


class _Deferred(torch.autograd.Function):
    """x W' + b with the gradients of x and b alone."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, detached: Tensor, bias: Tensor | None, later: tuple[Tensor, WeightGradients]
    ) -> Tensor:
        ctx.save_for_backward(x, detached)
        # In a tuple, the weight is no input of this node: autograd expects no gradient of it here.
        ctx.later, ctx.has_bias = later, bias is not None
        return functional.linear(x, detached, bias)

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, None, Tensor | None, None]:
        (gradient,) = outputs
        x, detached = ctx.saved_tensors
        weight, gradients = ctx.later
        gradients.waiting.append(Waiting(weight, x, gradient))
        bias = gradient.reshape(-1, gradient.shape[-1]).sum(0) if ctx.has_bias else None
        return gradient @ detached if ctx.needs_input_grad[0] else None, None, bias, None
