"""The gradient norm by hand, and clipping as torch does it."""

import pytest
import torch

from planner.executor.data_parallel.norm import clip, global_norm

CPU = torch.device("cpu")


def test_norm_of_all_tensors() -> None:
    # sqrt(3^2 + 4^2 + 12^2) = 13
    gradients = [torch.tensor([3.0, 4.0]), torch.zeros(0), torch.tensor([[12.0]])]
    assert global_norm(gradients, [], CPU) == pytest.approx(13.0)


def test_norm_of_millions_keeps_its_digits() -> None:
    """One fp32 sum over these is off by 8e-5 on a CPU."""
    numbers = torch.randn(4_000_003, generator=torch.Generator().manual_seed(0))
    exact = numbers.double().square().sum().sqrt().item()
    assert global_norm([numbers], [], torch.device("cpu")) == pytest.approx(exact, rel=5e-7)


def test_norm_of_nothing() -> None:
    assert global_norm([], [], CPU) == 0.0


def test_bf16_gradients_are_summed_in_fp32() -> None:
    # In bf16, 256 + 1 = 256: a sum of 1024 ones would stop early.
    ones = torch.ones(1024, dtype=torch.bfloat16)
    assert global_norm([ones], [], CPU) == pytest.approx(32.0)


def test_clipping_as_torch() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    ours = parameter.grad.clone()
    torch.nn.utils.clip_grad_norm_([parameter], 0.5)
    clip([ours, torch.zeros(0)], 5.0, 0.5)
    torch.testing.assert_close(ours, parameter.grad)


def test_a_small_norm_is_left_alone() -> None:
    gradient = torch.tensor([3.0, 4.0])
    clip([gradient], 5.0, 6.0)
    assert gradient.tolist() == [3.0, 4.0]
