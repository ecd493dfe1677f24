"""Weight gradients that wait: equal to those of a whole backward, and nothing else is kept for them."""

import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from planner.executor.weight_gradients import (
    CanDefer,
    WeightGradients,
    add_weight_gradients,
    attach,
    linear,
)


class Dense(CanDefer):
    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, None, self.weight_gradients)


class Net(nn.Module):
    """Two linear layers, torch's with a bias and one of this project, around a norm and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 10)
        self.down = Dense(10, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def _gradients(net: nn.Module) -> dict[str, Tensor]:
    return {name: each.grad.clone() for name, each in net.named_parameters() if each.grad is not None}


def _whole(net: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    leaf = x.clone().requires_grad_()
    net(leaf).square().sum().backward()
    found = _gradients(net)
    net.zero_grad()
    assert leaf.grad is not None
    return leaf.grad, found


@pytest.mark.parametrize("again", [False, True], ids=["kept", "recomputed"])
def test_halves_make_the_gradients_of_the_whole(again: bool) -> None:
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 3, 6)
    expected_x, expected = _whole(net, x)
    gradients = WeightGradients(deferring=True)
    attach(net, gradients)
    leaf = x.clone().requires_grad_()
    out = checkpoint(net, leaf, use_reentrant=False) if again else net(leaf)
    out.square().sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, expected_x)
    assert set(_gradients(net)) == {"norm.weight", "norm.bias", "up.bias"}
    waiting = gradients.take()
    assert len(waiting) == 2
    add_weight_gradients(waiting)
    assert not waiting
    torch.testing.assert_close(_gradients(net), expected)


def test_only_inputs_and_output_gradients_are_kept_between_the_halves() -> None:
    net, gradients = Net(), WeightGradients(deferring=True)
    attach(net, gradients)
    kept: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(tensor: Tensor) -> Kept:
        found = Kept(tensor)
        kept.add(found)
        return found

    x = torch.randn(2, 3, 6, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda found: found.tensor):
        out = net(x)
    assert kept
    out.sum().backward()
    assert not kept
    shapes = [(tuple(each.x.shape), tuple(each.gradient.shape)) for each in gradients.take()]
    assert shapes == [((2, 3, 10), (2, 3, 6)), ((2, 3, 6), (2, 3, 10))]


class Kept:
    """A tensor that autograd saved."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def test_hooks_of_a_parameter_run_when_its_gradient_comes() -> None:
    net, gradients = Net(), WeightGradients(deferring=True)
    attach(net, gradients)
    seen = []
    net.up.weight.register_post_accumulate_grad_hook(lambda each: seen.append("up"))  # type: ignore[no-untyped-call]
    for _ in range(2):
        net(torch.randn(2, 6, requires_grad=True)).sum().backward()
        assert not seen
        add_weight_gradients(gradients.take())
        assert seen == ["up"]
        seen.clear()


def test_whole_backward_and_frozen_weights_put_nothing_off() -> None:
    net, gradients = Net(), WeightGradients()
    attach(net, gradients)
    net(torch.randn(2, 6)).sum().backward()
    assert net.up.weight.grad is not None
    gradients.deferring = True
    net.up.weight.requires_grad_(False)
    net(torch.randn(2, 6, requires_grad=True)).sum().backward()
    assert [each.weight is net.down.weight for each in gradients.take()] == [True]
