"""Adapters beside frozen weights train under every layout as in one process, and nothing else is trained."""

import pytest

from planner.executor.refuse import run_violations
from tests.planner.executor.equality import OPTIONS, compare, compare_all
from tests.planner.executor.orders import DEEPSEEK, LLAMA, MIXTRAL, tiny_order

ALL = "lora:r=4"
# Data parallel of every kind; both tensor-parallel ways; a split backward; experts over ep, etp and data ranks.
CASES = (
    ("dp=2,zero=0", LLAMA, ALL, "ddp"),
    ("dp=2,zero=1", LLAMA, ALL, "torch"),
    ("dp=2,zero=2,recompute=full:1", LLAMA, "lora:r=4,targets=down", "fsdp2"),
    ("dp=2,zero=3", LLAMA, "lora:r=4,targets=q+v", "torch"),
    ("tp=2,recompute=selective:mlp", LLAMA, ALL, "torch"),
    ("tp=2,sp=false", LLAMA, ALL, "torch"),
    ("pp=2,schedule=zb-h1,stages=2+2", LLAMA, ALL, "torch"),
    # The first stage, with the only dense block, trains nothing.
    ("pp=2,mbs=2,zero=0,stages=1+1", DEEPSEEK, "lora:r=4,targets=expert_down", "torch"),
    ("cp=2", LLAMA, ALL, "torch"),
    ("tp=2,ep=2,mbs=2", MIXTRAL, ALL, "torch"),
    ("dp=2,ep=2,zero=3,mbs=2", MIXTRAL, ALL, "torch"),
    ("tp=2,etp=2,mbs=2", MIXTRAL, "lora:r=4,targets=expert_gate_up+expert_down", "torch"),
    ("tp=2,ep=2,mbs=4", DEEPSEEK, ALL, "torch"),
)


def order_of(strategy, config, trainable, engine, devices):
    job = {"global_batch": 8, "options": {"job.trainable": trainable}}
    return tiny_order(
        strategy, devices=devices, engine=engine, config=config, job=job, **OPTIONS, lora_init="random"
    )


def test_two_processes_equal_one():
    orders = [order_of(*case, devices=2) for case in CASES]
    assert [run_violations(order, 0) for order in orders] == [()] * len(orders)
    for order, found in zip(orders, compare_all(orders, 2), strict=True):
        assert found.within_limits(), (order.strategy.mesh_text(), found)


@pytest.mark.matrix
@pytest.mark.parametrize("strategy", ["pp=2,dp=2,tp=2,zero=1,stages=3+1", "pp=2,dp=2,tp=2,zero=3,stages=1+3"])
def test_eight_processes_equal_one(strategy):
    found = compare(order_of(strategy, LLAMA, ALL, "torch", 8), 8)
    assert found.within_limits(), found
