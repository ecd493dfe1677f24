"""Adapters beside frozen weights train under every layout as in one process, and nothing else is trained."""

import pytest
import torch

from planner.executor.refuse import run_violations
from planner.executor.request import order_of_document
from planner.executor.step import Trainer
from tests.planner.executor.adapters.layouts import ALL, EIGHT, TWO, adapted_layouts
from tests.planner.executor.equality import compare_all
from tests.planner.executor.orders import tiny_order
from tests.planner.executor.ranks import run_ranks

# Shards over data ranks, both tensor-parallel ways, a stage that trains nothing, experts over etp.
CHOSEN = (
    "dp=2,zero=3",
    "tp=2,recompute=selective:mlp",
    "tp=2,sp=false",
    "pp=2,mbs=2,zero=0,stages=1+1",
    "tp=2,etp=2,mbs=2",
)


@pytest.mark.parametrize(
    "chosen", [CHOSEN, pytest.param(None, marks=pytest.mark.matrix)], ids=["some", "all"]
)
def test_two_processes_equal_one(chosen):
    layouts = [each for each in adapted_layouts(TWO, 2) if chosen is None or each.strategy in chosen]
    assert chosen is None or len(layouts) == len(chosen)
    orders = [layout.order() for layout in layouts]
    assert [run_violations(order, 0) for order in orders] == [()] * len(orders)
    for order, found in zip(orders, compare_all(orders, 2), strict=True):
        assert found.within_limits(), (order.strategy.mesh_text(), found)


@pytest.mark.matrix
def test_eight_processes_equal_one():
    for found in compare_all([layout.order() for layout in adapted_layouts(EIGHT, 8)], 8):
        assert found.within_limits(), found


def test_frozen_parts_lie_in_the_type_of_the_computation():
    """Under bf16 the base takes two bytes an element under every layout, adapters' masters four."""
    layouts = (
        ("dp=2,zero=0", "ddp"),
        ("tp=2", "torch"),
        ("dp=2,zero=3,offload=parameters", "torch"),
    )
    job = {"precision": "bf16", "options": {"job.trainable": ALL}}
    orders = [
        tiny_order(text, devices=2, engine=engine, job=job, lora_init="random", lr=1e-2)
        for text, engine in layouts
    ]
    for ranks in zip(*run_ranks(losses_and_types, 2, [order.to_json() for order in orders]), strict=True):
        for losses, frozen, trained in ranks:
            assert (frozen, trained) == ({torch.bfloat16}, {torch.float32})
            assert losses == pytest.approx([4.8809, 4.8713], abs=1e-3)


def losses_and_types(rank, world, documents):
    found = []
    for document in documents:
        trainer = Trainer(order_of_document(document), torch.device("cpu"))
        losses = [trainer.train_step().loss for _ in range(2)]
        held = trainer.data_parallel.frozen(), trainer.data_parallel.held()
        found.append((losses, *({each.values.dtype for each in part} for part in held)))
    return found
