"""Attention merged from parts is softmax attention, forward and backward, under every mask."""

import pytest
import torch
from torch import Tensor

from planner.executor.model.context_parallel import ContextParallel
from planner.executor.model.operators import partial_attention
from planner.executor.model.operators.context_attention import Setup, context_attention
from planner.executor.model.operators.partial_attention import Parts, Scoring
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
@pytest.mark.parametrize("cap", [0.0, 2.0])
def test_equals_softmax_attention(shape: MaskShape, cap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_attention, "QUERY_BLOCK", 7)
    torch.manual_seed(0)
    slopes = torch.rand(HEADS) if cap else None
    scoring = Scoring(0.3, shape, Tables(), cap, slopes)
    sizes = ((HEADS, 8), (KEY_HEADS, 8), (KEY_HEADS, 6))
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
