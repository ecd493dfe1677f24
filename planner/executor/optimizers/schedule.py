"""How the learning rate moves: linear warm-up, then constant or half a cosine."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from planner.executor.optimizers.settings import OptimizerSettings


def lr_share(settings: OptimizerSettings, step: int) -> float:
    """Share of the full learning rate in a step, counted from 0; the last warm-up step has the full rate."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    if settings.decay == "constant":
        return 1.0
    span = max(settings.total_steps - settings.warmup_steps, 1)
    progress = min((step - settings.warmup_steps) / span, 1.0)
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return settings.final_lr_share + (1.0 - settings.final_lr_share) * cosine


def build_schedule(optimizer: Optimizer, settings: OptimizerSettings) -> LRScheduler:
    """A scheduler to be stepped after every optimizer step."""
    return LambdaLR(optimizer, lambda step: lr_share(settings, step))


def go_on_after(schedule: LRScheduler, steps: int) -> None:
    """Set the learning rates of a new run's first step, after so many steps of another run."""
    assert isinstance(schedule, LambdaLR)
    schedule.last_epoch = steps
    shares = [share(steps) for share in schedule.lr_lambdas]
    for group, base, share in zip(schedule.optimizer.param_groups, schedule.base_lrs, shares, strict=True):
        group["lr"] = base * share
