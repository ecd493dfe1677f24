"""From settings to an optimizer over local tensors."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from cost_models.specs.job import Optimizer as Kind
from planner.executor.optimizers.settings import OptimizerSettings


def build_optimizer(parameters: Sequence[nn.Parameter], settings: OptimizerSettings) -> Optimizer:
    """The optimizer of local tensors; those without elements on this rank are left out."""
    held = [parameter for parameter in parameters if parameter.numel()] or [nn.Parameter(torch.zeros(1))]
    lr, decay = settings.lr, settings.weight_decay
    if settings.kind is Kind.SGD:
        return SGD(held, lr=lr, momentum=settings.momentum, weight_decay=decay, fused=True)
    return AdamW(held, lr=lr, betas=settings.betas, eps=settings.eps, weight_decay=decay, fused=True)
