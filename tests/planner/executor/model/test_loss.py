"""The loss is a sum over valid positions, in fp32, whichever way it is made."""

import math

import pytest
import torch
from torch.nn import functional

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import last_output
from planner.executor.model.loss import class_loss_sum, token_loss_sum
from planner.executor.model.options import BuildOptions
from tests.planner.executor.model.configs import CASES

ROWS, COLUMNS = 6, 10


def _case(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    targets = torch.randint(COLUMNS, (2, ROWS // 2))
    targets[0, 1] = -100
    return (torch.randn(2, ROWS // 2, COLUMNS) * 4).to(dtype), targets


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_torchs_cross_entropy(fused: bool, dtype: torch.dtype) -> None:
    values, targets = _case(dtype)
    theirs = values.float().clone().requires_grad_()
    expected = functional.cross_entropy(theirs.flatten(0, 1), targets.flatten(), reduction="sum")
    (expected * 0.25).backward()
    leaf = values.clone().requires_grad_()
    # A sum's output, which nobody keeps, so that the fused loss may overwrite it.
    loss = token_loss_sum(leaf + 0.0, targets, fused=fused)
    (loss * 0.25).backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert leaf.grad is not None
    assert theirs.grad is not None
    tolerance = 1e-6 if dtype == torch.float32 else 2e-3
    assert torch.allclose(leaf.grad.float(), theirs.grad, atol=tolerance)


def test_two_equal_logits_cost_ln_two_each() -> None:
    # softmax of (0, 0) is (1/2, 1/2): -ln 1/2 a row, two valid rows of three.
    loss = token_loss_sum(torch.zeros(1, 3, 2), torch.tensor([[0, 1, -100]]))
    assert loss.item() == pytest.approx(2.0 * math.log(2.0))


@pytest.mark.parametrize("fused", [False, True])
def test_padded_columns_do_not_count(fused: bool) -> None:
    # Three columns exist of four: three equal logits cost ln 3, whatever stands in the padding.
    logits = torch.tensor([[[0.0, 0.0, 0.0, 50.0]]], requires_grad=True)
    loss = token_loss_sum(logits + 0.0, torch.tensor([[1]]), vocab_size=3, fused=fused)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3.0))
    assert logits.grad is not None
    assert logits.grad[0, 0, 3].item() == 0.0


def test_classes() -> None:
    loss = class_loss_sum(torch.zeros(4, 8), torch.tensor([0, 1, 2, 3]))
    assert loss.item() == pytest.approx(4.0 * math.log(8.0))


@pytest.mark.parametrize("chunks", [2, 3, 64])
def test_chunked_loss_is_the_loss(chunks: int) -> None:
    model = read_model(CASES["llama tied"], name="llama")
    ids = torch.randint(64, (2, 16))
    plain = build_chunk(model, whole(model), BuildOptions())
    chunked = build_chunk(model, whole(model), BuildOptions(cross_entropy_chunks=chunks))
    assert chunked.takes_targets
    assert not plain.takes_targets
    expected = plain.loss_sum(plain(ids), ids)
    found = chunked.loss_sum(last_output(chunked, ids, ids), ids)
    expected.backward()
    found.backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    for one, two in zip(plain.parameters(), chunked.parameters(), strict=True):
        assert one.grad is not None
        assert two.grad is not None
        assert torch.allclose(one.grad, two.grad, atol=1e-5)
