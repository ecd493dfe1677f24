"""The learning rate by step, by hand."""

import math

import pytest
import torch
from torch import nn

from planner.executor.optimizers.schedule import build_schedule, lr_share
from planner.executor.optimizers.settings import OptimizerSettings


def test_warm_up_rises_to_the_full_rate() -> None:
    settings = OptimizerSettings(warmup_steps=4)
    assert [lr_share(settings, step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_to_its_share() -> None:
    settings = OptimizerSettings(warmup_steps=2, decay="cosine", total_steps=12, final_lr_share=0.1)
    assert lr_share(settings, 2) == 1.0
    # Half-way: 0.1 + 0.9 x 0.5 x (1 + cos(pi / 2)) = 0.55; past the end it stays.
    assert lr_share(settings, 7) == pytest.approx(0.55)
    assert lr_share(settings, 12) == pytest.approx(0.1)
    assert lr_share(settings, 100) == pytest.approx(0.1)


def test_the_optimizer_follows() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=8.0)
    schedule = build_schedule(optimizer, OptimizerSettings(warmup_steps=4))
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == [2.0, 4.0, 6.0, 8.0]
    assert math.isclose(optimizer.param_groups[0]["lr"], 8.0)
