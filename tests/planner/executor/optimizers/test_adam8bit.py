"""8-bit Adam: the code tables, round trips, bytes, and how closely it follows AdamW."""

import pytest
import torch
from torch import nn

from planner.executor.optimizers.adam8bit import BLOCK_ELEMENTS, Adam8bit, Quantized, code_table
from planner.executor.optimizers.settings import OptimizerSettings

CPU = torch.device("cpu")


@pytest.mark.parametrize("signed", [True, False])
def test_code_tables(signed: bool) -> None:
    table = code_table(signed, CPU)
    assert len(table) == 256 == len(table.unique())
    assert bool((table.diff() > 0).all())
    assert table[-1] == 1.0
    assert 0.0 in table


def test_signed_table_by_hand() -> None:
    table = code_table(True, CPU)
    # The top power of ten has 64 means of 65 edges from 0.1 to 1: the first is 0.1 + 0.9 / 128.
    assert table[table > 0.1][0].item() == pytest.approx(0.1 + 0.9 / 128)
    # The lowest (1e-6) has one: the mean of 0.1 and 1.
    assert table[table > 0.0][0].item() == pytest.approx(0.55e-6)


@pytest.mark.parametrize("signed", [True, False])
def test_round_trip(signed: bool) -> None:
    values = torch.randn(8, BLOCK_ELEMENTS, generator=torch.Generator().manual_seed(0))
    values = values if signed else values.square()
    stored = Quantized.zeros(8, CPU, signed=signed)
    stored.write(0, values)
    # Codes near 1 are at most 0.9 / 64 apart (0.9 / 128 unsigned), so the nearest is within half of that.
    error = (stored.read(0, 8) - values).abs() / values.abs().amax(1, keepdim=True)
    assert error.max().item() <= 0.9 / 128 * 1.01


def test_zeros_stay_zero_and_small_second_moments_do_not() -> None:
    stored = Quantized.zeros(1, CPU, signed=False)
    assert stored.read(0, 1).abs().max() == 0.0
    values = torch.zeros(1, BLOCK_ELEMENTS)
    values[0, :2] = torch.tensor([1.0, 1e-12])
    stored.write(0, values)
    read = stored.read(0, 1)[0]
    assert read[1] > 0.0
    assert read[2] == 0.0


def _train(optimizer_of: object, steps: int = 100) -> tuple[float, nn.Parameter]:
    """A linear regression of 4,000 weights; the last loss."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(256, 40, generator=generator)
    targets = inputs @ torch.randn(40, 100, generator=generator)
    weights = nn.Parameter(torch.zeros(40, 100))
    optimizer = optimizer_of([weights])  # type: ignore[operator]
    loss = torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (inputs @ weights - targets).square().mean()
        loss.backward()
        optimizer.step()
    return loss.item(), weights


def test_follows_adamw() -> None:
    settings = OptimizerSettings(lr=2e-2)
    exact, reference = _train(lambda parameters: torch.optim.AdamW(parameters, lr=2e-2, weight_decay=0.01))
    ours, weights = _train(lambda parameters: Adam8bit(parameters, settings))
    # 100 steps of at most 2e-2 bring the loss from 40 to under 2 for both; the weights stay within 5 %.
    assert ours == pytest.approx(exact, rel=0.05)
    assert ((weights - reference).norm() / reference.norm()).item() < 0.05


def test_first_step_equals_adamw() -> None:
    # Moments are read as zeros before it and used in fp32: quantization shows from the second step on.
    settings = OptimizerSettings(lr=2e-2)
    _, reference = _train(lambda parameters: torch.optim.AdamW(parameters, lr=2e-2, weight_decay=0.01), 1)
    _, weights = _train(lambda parameters: Adam8bit(parameters, settings), 1)
    torch.testing.assert_close(weights, reference, rtol=1e-6, atol=1e-8)


def test_bytes_of_the_state() -> None:
    # 4,000 weights in 16 blocks of 256: 2 x 4096 codes and 2 x 16 scales of 4 bytes = 8,320 bytes, 2.08 a weight.
    parameter = nn.Parameter(torch.zeros(40, 100))
    parameter.grad = torch.ones(40, 100)
    optimizer = Adam8bit([parameter], OptimizerSettings())
    optimizer.step()
    moments = [each for each in optimizer.state[parameter].values() if isinstance(each, Quantized)]
    assert sum(each.codes.nbytes + each.scales.nbytes for each in moments) == 8320
