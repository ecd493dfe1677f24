"""Choices beyond a capacity, the load-balancing loss and the moving correction, against numbers worked out by hand."""

import math

import pytest
import torch

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk
from planner.executor.model.expert_parallel import Balance, ExpertParallel
from planner.executor.model.operators.balance import Routed, capacity_of, left_out, with_auxiliary
from planner.executor.model.operators.routing import Choice, even_out, routers_of
from planner.executor.model.options import BuildOptions, ChunkCut
from tests.planner.executor.model.configs import CASES


def test_capacity_is_a_share_of_the_choices_rounded_up() -> None:
    # 10 tokens x 2 choices / 4 experts = 5; x 1.25 = 6.25.
    assert capacity_of(Balance(capacity=1.25), 10, 2, 4) == 7
    assert capacity_of(Balance(capacity=0.01), 10, 2, 4) == 1
    assert capacity_of(Balance(), 10, 2, 4) == 0


def test_the_smallest_weights_are_left_out_in_each_part_alone() -> None:
    weights = torch.tensor([[0.5], [0.9], [0.7], [0.1], [0.2]])
    experts = torch.tensor([[0], [0], [0], [0], [1]])
    # Tokens 0 to 2 on one rank, 3 and 4 on another: expert 0 keeps 0.9 and 0.7 of the first, 0.1 of the second.
    cut = left_out(weights, experts, torch.tensor([0, 0, 0, 1, 1]), capacity=2)
    assert cut.dropped.flatten().tolist() == [True, False, False, False, False]
    assert cut.margin.item() == pytest.approx(0.2)
    assert math.isinf(left_out(weights, experts, torch.arange(5), capacity=1).margin)


def _auxiliary_gradient(by_sequence: bool) -> torch.Tensor:
    logits = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 2.0], [0.3, 0.1]], requires_grad=True)
    experts = torch.tensor([[0], [0], [1], [0]])
    balance = Balance(auxiliary=0.1, by_sequence=by_sequence)
    weights = torch.zeros(4, 1, requires_grad=True)
    with_auxiliary(weights, logits, experts, Routed(2, "softmax", balance)).sum().backward()
    assert weights.grad is not None and bool((weights.grad == 1.0).all())
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("by_sequence", [False, True])
def test_the_auxiliary_loss_is_the_published_one(by_sequence: bool) -> None:
    logits = torch.tensor([[1.0, 0.0], [0.5, 0.0], [0.0, 2.0], [0.3, 0.1]], requires_grad=True)
    scores = logits.softmax(-1)
    # Choices of experts 0 and 1: 3 and 1 of the batch; 2 and 0 of the first sequence, 1 and 1 of the second.
    if by_sequence:
        first = (torch.tensor([1.0, 0.0]) * scores[:2].mean(0)).sum()
        second = (torch.tensor([0.5, 0.5]) * scores[2:].mean(0)).sum()
        loss = 0.1 * 2 * (first + second) / 2
    else:
        loss = 0.1 * 2 * (torch.tensor([0.75, 0.25]) * scores.mean(0)).sum()
    (expected,) = torch.autograd.grad(loss, logits)
    assert torch.allclose(_auxiliary_gradient(by_sequence), expected, atol=1e-7)


def test_a_correction_counts_in_the_choice_and_not_in_the_weight() -> None:
    choice = Choice(1, "sigmoid", normalise=False, scaling=1.0, groups=1, groups_kept=1)
    logits = torch.tensor([[0.0, 1.0]])
    plain, corrected = choice.choose(logits), choice.choose(logits, torch.tensor([0.5, 0.0]))
    assert (plain.experts.item(), corrected.experts.item()) == (1, 0)
    assert corrected.weights.item() == pytest.approx(0.5)


def test_the_correction_rises_where_few_tokens_went() -> None:
    model = read_model(CASES["deepseek v3"], name="deepseek")
    chunk = build_chunk(model, ChunkCut(False, False, 1, 2), BuildOptions())
    (router,) = routers_of(chunk).values()
    router.load = torch.tensor([5.0, 1.0, 3.0, 3.0])
    even_out([router], 0.001)
    assert router.correction is not None
    assert router.correction.tolist() == pytest.approx([-0.001, 0.001, 0.0, 0.0])
    assert router.load.sum() == 0.0
    chunk(torch.randn(2, 8, 64))
    assert router.load.sum() == 2 * 8 * 2  # tokens x top_k
    assert "layers.2.router.correction" in chunk.state_dict()
    assert "layers.2.router.load" not in chunk.state_dict()


def test_nothing_is_dropped_at_a_capacity_that_is_never_reached() -> None:
    model = read_model(CASES["mixtral"], name="mixtral")
    x = torch.randn(2, 8, 64)
    outputs = []
    for capacity in (0.0, 4.0):
        experts = ExpertParallel(balance=Balance(capacity=capacity))
        outputs.append(build_chunk(model, ChunkCut(False, False, 0, 1), BuildOptions(experts=experts))(x))
    assert torch.allclose(*outputs, atol=1e-6)
