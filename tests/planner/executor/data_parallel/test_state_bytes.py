"""Bytes that ZeRO 0 and 1 hold: what the cost model's state_bytes of the torch engine says, and no second copy."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from cost_models.specs.job import Precision
from planner.executor.data_parallel.base import DataParallelSettings
from planner.executor.data_parallel.wrap import wrap
from planner.executor.mesh import build_meshes
from tests.planner.executor.strategies import strategy

RunRanks = Callable[..., list[Any]]

ROWS, COLUMNS = 128, 100
PARAMETERS = ROWS * COLUMNS + ROWS


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(COLUMNS, ROWS)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers[0](x)  # type: ignore[no-any-return]


def _bytes_held() -> int:
    """Bytes of all distinct tensor storages that Python can reach."""
    gc.collect()
    storages = {}
    for each in gc.get_objects():
        if isinstance(each, torch.Tensor) and each.device.type == "cpu" and each.layout is torch.strided:
            storage = each.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def _held_by_training(rank: int, world: int, zero: int, precision: Precision) -> float:
    """Bytes per parameter after two steps."""
    before = _bytes_held()
    plan = strategy(dp_shard=world, zero=zero)
    settings = DataParallelSettings(engine="torch", precision=precision)
    data = wrap([Model()], plan, build_meshes(plan, "cpu"), settings)
    for _ in range(2):
        data.start_step(1)
        data.modules[0](torch.ones(2, COLUMNS)).float().sum().backward()
        data.finish_gradients()
        data.step(1.0)
    held = (_bytes_held() - before) / PARAMETERS
    assert all(parameter.grad is not None for parameter in data.modules[0].parameters())
    return held


@pytest.mark.parametrize(
    ("zero", "precision", "expected"),
    [
        (0, Precision.FP32, 4 + 4 + 8),  # weights, gradients, two moments
        (1, Precision.FP32, 4 + 4 + 8 / 2),  # moments of half
        (0, Precision.BF16, 2 + 4 + 12),  # bf16 weights, fp32 gradients, masters and moments
        (1, Precision.BF16, 2 + 4 + 12 / 2),
    ],
)
def test_bytes_per_parameter(run_ranks: RunRanks, zero: int, precision: Precision, expected: float) -> None:
    for held in run_ranks(_held_by_training, 2, zero, precision):
        assert held == pytest.approx(expected, rel=0.01)
