"""Attention merged from parts is softmax attention, forward and backward, under every mask."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.operators import fused_parts, partial_attention
from planner.executor.model.operators.context_attention import Setup, context_attention
from planner.executor.model.operators.partial_attention import Finished, Parts, Scoring
from planner.executor.model.operators.tables import MaskShape, Tables

LENGTH, HEADS, KEY_HEADS = 24, 4, 2
SHAPES = (
    MaskShape(causal=True),
    MaskShape(causal=False),
    MaskShape(causal=True, window=5),
    MaskShape(causal=False, window=5),
    MaskShape(causal=True, chunk=8),
)


def _plain(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, scoring: Scoring) -> Tensor:
    """Softmax over all scores at once."""
    k, v = (each.repeat_interleave(HEADS // KEY_HEADS, 1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) * scoring.scale
    if scoring.cap:
        scores = torch.tanh(scores / scoring.cap) * scoring.cap
    row = torch.arange(LENGTH).unsqueeze(1)
    if scoring.slopes is not None:
        scores = scores + (row.T - row) * scoring.slopes.view(1, -1, 1, 1)
    scores = scores.masked_fill(~scoring.shape.seen(row, row.T), float("-inf"))
    share = sinks.view(1, -1, 1, 1).expand(q.shape[0], -1, LENGTH, 1)
    return torch.cat((scores, share), -1).softmax(-1)[..., :-1] @ v


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("cap", "width"), [(0.0, 6), (0.0, 8), (2.0, 6)], ids=["plain", "fused", "capped"])
def test_equals_softmax_attention(
    shape: MaskShape, cap: float, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_attention, "QUERY_BLOCK", 7)
    torch.manual_seed(0)
    slopes = torch.rand(HEADS) if cap else None
    scoring = Scoring(0.3, shape, Tables(), cap, slopes)
    sizes = ((HEADS, 8), (KEY_HEADS, 8), (KEY_HEADS, width))
    tensors = [torch.randn(2, heads, LENGTH, dim, requires_grad=True) for heads, dim in sizes]
    tensors.append(torch.randn(HEADS, requires_grad=True))
    found = context_attention(*tensors, Setup(ContextParallel(), scoring))
    expected = _plain(*tensors, scoring)
    assert torch.allclose(found, expected, atol=1e-5)
    weights = torch.randn_like(expected)
    pairs = zip(
        torch.autograd.grad((found * weights).sum(), tensors),
        torch.autograd.grad((expected * weights).sum(), tensors),
        strict=True,
    )
    assert all(torch.allclose(ours, theirs, atol=2e-5) for ours, theirs in pairs)


def test_scores_exist_in_no_tensor_where_a_kernel_makes_a_part() -> None:
    """Two runs of 256 queries over four of keys: nothing that is made is larger than queries in fp32."""
    heads, length = 2, 512
    scoring = Scoring(0.3, MaskShape(causal=True), Tables())
    q, k, v = (torch.randn(1, heads, length, 8) for _ in range(3))
    runs = ((0, 256), (768, 256))
    output_gradient = torch.randn(1, heads, length, 8)
    with Largest() as largest:
        parts = Parts(q, 8, scoring)
        parts.add(k, v, runs, ((0, 256), (256, 256)))
        product = torch.linalg.vecdot(output_gradient, parts.output)
        finished = Finished(q, parts.output, output_gradient, parts.log_sum, product, scoring)
        finished.part(k, v, runs, ((0, 256), (256, 256)), torch.zeros_like(q))
    assert largest.num_bytes <= q.nbytes


class Largest(TorchDispatchMode):
    """Bytes of the largest tensor that an operator made."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.num_bytes = max(self.num_bytes, tensor.untyped_storage().nbytes())
        return out


def test_a_gpus_kernels_take_what_they_are_given() -> None:
    """Shapes alone, on a device that need not be there: both calls are as torch's own signatures want them."""
    with FakeTensorMode():
        q = torch.empty(2, 8, 64, 64, dtype=torch.bfloat16, device="cuda")
        k = torch.empty(2, 2, 64, 64, dtype=torch.bfloat16, device="cuda")
        out, log_sum = fused_parts.forward(q, k, k, 0.1, causal=True)
        found = fused_parts.backward(out, (q, k, k), (out, log_sum), 0.1, causal=True)
        assert (out.shape, log_sum.shape, log_sum.dtype) == (q.shape, q.shape[:3], torch.float32)
        assert [each.shape for each in found] == [q.shape, k.shape, k.shape]


def test_parts_in_any_order_make_the_whole() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 16, 4) for _ in range(3))
    scoring = Scoring(0.5, MaskShape(causal=True), Tables())
    # This rank holds positions 0 to 3 and 12 to 15 of 16; the keys come from itself and from the other, either first.
    own, other = ((0, 4), (12, 4)), ((4, 4), (8, 4))
    mine = [0, 1, 2, 3, 12, 13, 14, 15]
    outputs = []
    for order in ((own, other), (other, own)):
        parts = Parts(q[:, :, mine], 4, scoring)
        for runs in order:
            held = [position for start, length in runs for position in range(start, start + length)]
            parts.add(k[:, :, held], v[:, :, held], own, runs)
        outputs.append(parts.output)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    whole = (q @ k.transpose(-1, -2) * 0.5).masked_fill(~mask, float("-inf")).softmax(-1) @ v
    assert all(torch.allclose(each, whole[:, :, mine], atol=1e-6) for each in outputs)
