"""Positions divided over ranks: attention that travels, gathers or swaps heads trains as one process does."""

from collections.abc import Mapping
from typing import Any

import pytest

from planner.executor.positions import context_runs, positions_of, token_parts
from planner.executor.refuse import run_violations
from tests.planner.executor.equality import JOB, OPTIONS, compare_all
from tests.planner.executor.model.configs import CASES as FAMILIES
from tests.planner.executor.orders import DEEPSEEK, LLAMA, tiny_order
from tests.planner.executor.strategies import strategy
from tests.planner.executor.test_experts import AUXILIARY, CUT

GROUPED: Mapping[str, object] = {**LLAMA, "hidden_size": 32, "num_hidden_layers": 2, "num_key_value_heads": 2}
Case = tuple[str, Mapping[str, object], Mapping[str, Any], Mapping[str, Any]]
ON_TWO: tuple[Case, ...] = (
    ("cp=2,mbs=4", GROUPED, {}, {}),
    ("cp=2,mbs=4,cp_kind=allgather,zero=3", GROUPED, {}, {}),
    ("cp=2,mbs=4,cp_kind=ulysses", GROUPED, {}, {}),
    ("cp=2,mbs=4,ep=2", DEEPSEEK, CUT, AUXILIARY),
    # A soft cap and a window; a slope by distance; learned positions and no causal mask.
    ("cp=2,mbs=8", FAMILIES["gemma2"], {}, {}),
    ("cp=2,mbs=8,cp_kind=allgather", FAMILIES["bloom"], {}, {}),
    ("cp=2,mbs=8", FAMILIES["bert"], {}, {}),
)
ON_FOUR: tuple[Case, ...] = (
    ("cp=4,mbs=8", GROUPED, {}, {}),
    ("cp=4,mbs=8,cp_kind=allgather,recompute=full", GROUPED, {}, {}),
    ("cp=2,tp=2,mbs=4,ep=4,cp_kind=ulysses", DEEPSEEK, {}, {}),
    ("cp=2,tp=2,mbs=4,etp=2,sp=false", DEEPSEEK, CUT, AUXILIARY),
    ("cp=2,pp=2,mbs=2,zero=1,recompute=full", DEEPSEEK, {}, {}),
    ("cp=2,dp=2,dp_replicate=2,dp_shard=1,zero=3,mbs=4", GROUPED, {}, {}),
    ("cp=2,mbs=4,dp=2,zero=1", FAMILIES["gpt oss"], {}, {}),
)


def _equal(cases: tuple[Case, ...], world: int) -> None:
    orders = []
    for text, config, job, options in cases:
        stated = {**JOB, "global_batch": 8, **job}
        orders.append(tiny_order(text, devices=world, config=config, job=stated, **OPTIONS, **options))
        assert run_violations(orders[-1], 0) == ()
    for order, found in zip(orders, compare_all(orders, world), strict=True):
        model = order.situation.model
        assert found.within_limits(), (model.name, order.strategy.text(), found)


def test_two_processes_equal_one() -> None:
    _equal(ON_TWO, 2)


@pytest.mark.matrix
def test_four_processes_equal_one() -> None:
    _equal(ON_FOUR, 4)


def test_every_rank_has_one_chunk_from_either_end() -> None:
    # 16 positions over two ranks in four chunks of 4: 0 and 3, 1 and 2.
    assert context_runs("ring", 2, 0, 16) == ((0, 4), (12, 4))
    assert context_runs("ring", 2, 1, 16) == ((4, 4), (8, 4))
    assert context_runs("ulysses", 2, 1, 16) == ((8, 8),)
    # Keys that queries of a rank see, itself included: 1+2+3+4 and 13+14+15+16, 5+..+8 and 9+..+12: 68 each.
    work = [sum(p + 1 for p in positions_of(context_runs("allgather", 2, rank, 16))) for rank in range(2)]
    assert work == [68, 68]


def test_tokens_are_routed_by_slices_of_what_a_rank_holds() -> None:
    plan = strategy(cp=2, tp=2, stages=(1,))
    assert token_parts(plan, 8) == ((0, 1), (6, 7), (2, 3), (4, 5))
