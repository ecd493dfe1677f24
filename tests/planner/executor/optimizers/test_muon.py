"""Muon: orthogonal updates, torch's own implementation, AdamW for what is no matrix."""

import pytest
import torch
from torch import Tensor, nn

from cost_models.specs.job import Optimizer
from planner.executor.optimizers.muon import Muon, orthogonalize
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import MatrixFunction, Target


class Whole:
    """A matrix that is all here."""

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        return function(local)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (3, 8, 8)])
def test_singular_values_come_near_one(shape: tuple[int, ...]) -> None:
    values = torch.linalg.svdvals(orthogonalize(random(*shape), torch.float32))
    # The quintic trades exactness for slope: values end between about 0.7 and 1.2 (Jordan et al. 2024).
    assert 0.3 < values.min().item() <= values.max().item() < 1.3


def test_a_stack_is_one_matrix_after_the_other() -> None:
    stack = random(3, 8, 6)
    each = torch.stack([orthogonalize(matrix, torch.float32) for matrix in stack])
    torch.testing.assert_close(orthogonalize(stack, torch.float32), each, rtol=1e-5, atol=1e-6)


def test_equals_torch_over_steps() -> None:
    ours, theirs = nn.Parameter(random(24, 10)), nn.Parameter(random(24, 10))
    settings = OptimizerSettings(Optimizer.MUON, lr=1e-2, weight_decay=0.1)
    muon = Muon([Target(ours, Whole())], settings, torch.bfloat16)
    reference = torch.optim.Muon([theirs], lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(3):
        ours.grad, theirs.grad = random(24, 10, seed=step), random(24, 10, seed=step)
        muon.step()
        reference.step()
    # torch's momentum is an average, ours a sum: the direction, which alone matters, is the same. bf16 iterations
    # differ by rounding: 1.3 % of the way gone, where a wrong scale or momentum would be off by tens of per cent.
    gone = (theirs - random(24, 10)).norm()
    assert ((ours - theirs).norm() / gone).item() < 0.03


def test_the_rest_is_adamw_at_the_same_rate() -> None:
    settings = OptimizerSettings(Optimizer.MUON, lr=1e-2)
    bias, reference = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    muon = Muon([Target(nn.Parameter(random(4, 4)), Whole()), Target(bias)], settings, torch.float32)
    adamw = torch.optim.AdamW([reference], lr=5e-3, weight_decay=settings.weight_decay)
    for group in muon.param_groups:
        group["lr"] = 5e-3
    bias.grad, reference.grad = random(4), random(4)
    muon.step()
    adamw.step()
    torch.testing.assert_close(bias, reference)
