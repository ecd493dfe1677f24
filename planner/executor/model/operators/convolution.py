"""Convolutional networks: convolution, batch normalisation, pooling."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.operators import BatchNorm, Conv2d, Pool
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, fan_out, ones, zeros
from planner.executor.model.tensor_parallel import local

BATCH_NORM_EPS = 1e-5
BATCH_NORM_MOMENTUM = 0.1
"""Both as in torch.nn.BatchNorm2d, which the ResNets of torchvision and transformers leave as they are."""

MAX_POOL_KERNEL = 3
"""The one max pooling of a ResNet, 3 x 3 (He et al. 2015, table 1)."""


class Conv2dModule(nn.Module):
    """A square convolution over [B, C, h, w]; patches (kernel = stride) have no border, others keep the size."""

    bias: nn.Parameter | None

    def __init__(self, operator: Conv2d, site: Site) -> None:
        super().__init__()
        kernel = operator.kernel_size
        shape = (operator.out_channels, operator.in_channels // operator.groups, kernel, kernel)
        self.weight = site.maker.make("weight", Initial(shape, fan_out))
        bias = Initial((operator.out_channels,), zeros)
        self.bias = site.maker.make("bias", bias) if operator.bias else None
        self.stride, self.groups = operator.stride, operator.groups
        self.padding = 0 if kernel == operator.stride else kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        """[B, in, h, w] -> [B, out, h / stride, w / stride]."""
        bias = None if self.bias is None else local(self.bias)
        return functional.conv2d(x, local(self.weight), bias, self.stride, self.padding, 1, self.groups)


class BatchNormModule(nn.Module):
    """Batch statistics of the micro-batch on this rank (as torch.nn.BatchNorm2d), and running ones for evaluation."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, operator: BatchNorm, site: Site) -> None:
        super().__init__()
        shape = (operator.channels,)
        self.weight = site.maker.make("weight", Initial(shape, ones))
        self.bias = site.maker.make("bias", Initial(shape, zeros))
        device = site.options.device
        self.register_buffer("running_mean", torch.zeros(shape, device=device))
        self.register_buffer("running_var", torch.ones(shape, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, h, w]."""
        return functional.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            local(self.weight).float(),  # statistics are fp32, and weights must be of their dtype
            local(self.bias).float(),
            self.training,
            BATCH_NORM_MOMENTUM,
            BATCH_NORM_EPS,
        )


class PoolModule(nn.Module):
    """ReLU, addition, max pooling, or the average over all positions."""

    def __init__(self, operator: Pool, site: Site) -> None:
        super().__init__()
        self.kind, self.stride = operator.kind, operator.stride

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """[B, C, h, w] -> the same, halved by a max pooling, [B, C] by an average."""
        if self.kind == "relu":
            return functional.relu(x)
        if self.kind == "max":
            return functional.max_pool2d(x, MAX_POOL_KERNEL, self.stride, MAX_POOL_KERNEL // 2)
        if self.kind == "average":
            return x.mean((-2, -1))
        return x if other is None else x + other
