"""RMSNorm that keeps its input and one number a row for the backward pass (Zhang and Sennrich 2019)."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """X / sqrt(mean(x^2) + eps) x weight over the last dimension.

    CUDA has a kernel of its own that keeps as little; elsewhere torch puts the norm together from operators that keep
    the normalised tensor too.
    """
    if x.device.type in ("cuda", "meta"):
        return functional.rms_norm(x, (x.shape[-1],), weight, eps)
    found: Tensor = _RmsNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return found


class _RmsNorm(torch.autograd.Function):
    """In fp32 whatever the dtype of x; the result has the dtype of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        wide = x.float()
        mean_square = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_() / x.shape[-1]
        rstd = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, rstd)
        out: Tensor = wide * rstd
        return (out if weight is None else out.mul_(weight)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor | None, None]:
        """With n = x rstd and g = dy weight: dx = rstd (g - n mean(g n)), dweight = sum of dy n."""
        x, weight, rstd = ctx.saved_tensors
        outer = gradients[0].float()
        normalised = x.float() * rstd
        to_weight = None
        if weight is not None and ctx.needs_input_grad[1]:
            to_weight = (outer * normalised).flatten(0, -2).sum(0).to(weight.dtype)
        if not ctx.needs_input_grad[0]:
            return None, to_weight, None
        inner = outer.clone() if weight is None else outer * weight
        share = torch.linalg.vecdot(inner, normalised).unsqueeze(-1).div_(x.shape[-1])
        return inner.sub_(normalised.mul_(share)).mul_(rstd).to(x.dtype), to_weight, None
