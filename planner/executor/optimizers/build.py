"""From settings to an optimizer over local tensors."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import SGD, Adafactor, AdamW, Optimizer

from cost_models.specs.job import Optimizer as Kind
from planner.executor.optimizers.adam8bit import Adam8bit
from planner.executor.optimizers.muon import Muon
from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import Target


def build_optimizer(targets: Sequence[Target], settings: OptimizerSettings, dtype: torch.dtype) -> Optimizer:
    """The optimizer of local tensors; `dtype` is that of the run's matrix multiplications."""
    if settings.kind is Kind.MUON:
        return Muon(targets, settings, dtype)
    # A rank may hold no element of a short tensor; an optimizer of nothing at all still has a learning rate.
    held = [target.parameter for target in targets if target.parameter.numel()] or [
        nn.Parameter(torch.zeros(1))
    ]
    lr, decay = settings.lr, settings.weight_decay
    match settings.kind:
        case Kind.SGD:
            return SGD(held, lr=lr, momentum=settings.momentum, weight_decay=decay, fused=True)
        case Kind.ADAM8BIT:
            return Adam8bit(held, settings)
        case Kind.ADAFACTOR:
            return Adafactor(held, lr=lr, weight_decay=decay)
    return AdamW(held, lr=lr, betas=settings.betas, eps=settings.eps, weight_decay=decay, fused=True)
