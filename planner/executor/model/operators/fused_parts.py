"""Torch's flash kernels for one part of an attention: output and log-sum forward, a part's gradients backward.

Such a kernel's backward takes the output and the log-sums of the whole attention as well as those of the part alone:
probabilities are made of scores and log-sums, and the output only enters by its product with its gradient (Dao et al.
2022, algorithm 4). Scores never exist beyond a tile of the kernel.
"""

import torch
from torch import Tensor
from torch.backends.cuda import SDPAParams, can_use_flash_attention

ATEN = torch.ops.aten


def takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether a kernel of the device takes [B, heads, L, D] and fewer heads of keys and values."""
    if q.device.type == "cpu":
        return q.shape[-1] == v.shape[-1]
    if q.device.type != "cuda" or q.shape[-1] != v.shape[-1] or q.shape[-1] % 8:
        return False
    return can_use_flash_attention(SDPAParams(q, k, v, None, 0.0, False, q.shape[1] != k.shape[1]))


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, *, causal: bool) -> tuple[Tensor, Tensor]:
    """Output [B, heads, L, D] and fp32 log-sums [B, heads, L]; `causal`: queries and keys stand at the same places."""
    if q.device.type == "cpu":
        found = ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, scale=scale)
    else:
        found = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
    return found[0], found[1]


def backward(
    gradient: Tensor,
    inputs: tuple[Tensor, Tensor, Tensor],
    whole: tuple[Tensor, Tensor],
    scale: float,
    *,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The part's gradients of (q, k, v); `whole` is the merged output and log-sums of its queries."""
    output, log_sum = whole[0], whole[1].contiguous()
    if gradient.device.type == "cpu":
        one, two, three = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
            gradient, *inputs, output, log_sum, 0.0, causal, scale=scale
        )
        return one, two, three
    q, k, _ = inputs
    seed, offset = (torch.zeros(shape, dtype=torch.uint64, device=q.device) for shape in ((2,), ()))
    one, two, three = ATEN._scaled_dot_product_flash_attention_backward(
        gradient,
        *inputs,
        output,
        log_sum,
        None,
        None,
        q.shape[2],
        k.shape[2],
        0.0,
        causal,
        seed,
        offset,
        scale=scale,
    )
    return one, two, three
