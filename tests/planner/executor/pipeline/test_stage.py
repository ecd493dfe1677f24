"""One stage's passes by themselves, and what is refused before a step."""

import pytest
import torch
from torch import Tensor, nn

from cost_models.errors import BadInput
from cost_models.schedule import ScheduleName
from planner.executor.pipeline.runner import PipelineRunner, PipelineShape
from planner.executor.pipeline.stage import Stage


def _loss(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).square().sum()


def test_halves_of_one_micro_batch_between_passes_of_another():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    inputs, gradients = torch.randn(2, 6, 4), torch.randn(2, 6, 3)
    expected = []
    for x, gradient in zip(inputs, gradients, strict=True):
        leaf = x.clone().requires_grad_()
        module(leaf).backward(gradient)
        expected.append(leaf.grad)
    whole = [each.grad.clone() for each in module.parameters()]
    module.zero_grad()

    stage = Stage(module, 1, frozenset({0}))
    outputs = [stage.forward(number, inputs[number].clone()) for number in range(2)]
    assert not any(each.requires_grad for each in outputs)
    first = stage.input_gradient(0, gradients[0])
    second = stage.backward(1, gradients[1])
    stage.weight_gradient(0)
    torch.testing.assert_close([first, second], expected)
    torch.testing.assert_close([each.grad for each in module.parameters()], whole)


def test_last_stage_gives_the_loss_and_starts_from_it():
    stage = Stage(nn.Identity(), 1, frozenset())
    loss = stage.forward_loss(0, torch.tensor([1.0, 3.0]), torch.zeros(2), _loss)
    assert (loss.item(), loss.requires_grad) == (10.0, False)
    gradient = stage.backward(0, torch.ones_like(loss))
    assert gradient is not None
    assert gradient.tolist() == [2.0, 6.0]


def test_frozen_first_stage_has_nothing_to_do_backward():
    module = nn.Linear(2, 2).requires_grad_(False)
    stage = Stage(module, 0, frozenset())
    stage.forward(0, torch.zeros(1, 2))
    assert stage.backward(0, torch.zeros(1, 2)) is None


def test_dualpipe_is_refused_by_name():
    shape = PipelineShape(ScheduleName.DUALPIPE, 2, 2, 4, 0)
    with pytest.raises(BadInput, match="schedule=dualpipe-v"):
        PipelineRunner(shape, None, None, torch.device("cpu"))
