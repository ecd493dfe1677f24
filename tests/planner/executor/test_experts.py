"""Routed experts on several ranks train as in one process: dropless, cut at a capacity, balanced either way."""

from collections.abc import Mapping
from typing import Any

import pytest

from planner.executor.refuse import run_violations
from tests.planner.executor.equality import JOB, OPTIONS, compare, compare_all
from tests.planner.executor.orders import DEEPSEEK, MIXTRAL, tiny_order

CUT: Mapping[str, Any] = {"options": {"job.moe_capacity_factor": 1.0}}
AUXILIARY: Mapping[str, Any] = {"moe_aux_loss": 0.1}
BALANCED: Mapping[str, Any] = {"moe_aux_loss": 0.1, "moe_aux_scope": "sequence", "moe_bias_rate": 0.01}
PREDICTING: Mapping[str, object] = {**DEEPSEEK, "num_nextn_predict_layers": 2}
PREDICTED: Mapping[str, Any] = {"options": {"job.train_mtp": True}}
CHUNKED: Mapping[str, Any] = {"options": {"job.train_mtp": True, "engine.cross_entropy_chunks": 2}}
CASES: tuple[tuple[str, Mapping[str, object], Mapping[str, Any], Mapping[str, Any]], ...] = (
    ("dp=2,ep=2,zero=1", MIXTRAL, {}, {}),
    ("dp=2,ep=2,zero=3,mbs=2", MIXTRAL, CUT, AUXILIARY),
    ("tp=2,ep=2,mbs=2", MIXTRAL, CUT, {}),
    ("tp=2,ep=2,sp=false,mbs=4", MIXTRAL, {}, AUXILIARY),
    ("tp=2,etp=2,mbs=2", MIXTRAL, CUT, AUXILIARY),
    ("dp=2,etp=2,zero=2,mbs=4", DEEPSEEK, CUT, BALANCED),
    ("tp=2,ep=2,mbs=4", DEEPSEEK, {}, BALANCED),
    # Prediction layers on the last stage, with copies of the first stage's table; divided features that come together.
    ("pp=2,mbs=2,schedule=zb-h1,stages=1+1", PREDICTING, PREDICTED, {}),
    ("tp=2,ep=2,mbs=4", PREDICTING, CHUNKED, {}),
    ("cp=2,ep=2,mbs=4,zero=3", PREDICTING, PREDICTED, {}),
)


def test_two_processes_equal_one() -> None:
    orders = []
    for strategy, config, job, options in CASES:
        stated = {**JOB, "global_batch": 8, **job}
        orders.append(tiny_order(strategy, devices=2, config=config, job=stated, **OPTIONS, **options))
        assert run_violations(orders[-1], 0) == ()
    for order, found in zip(orders, compare_all(orders, 2), strict=True):
        assert found.within_limits(), (order.strategy.mesh_text(), found)


@pytest.mark.matrix
def test_three_dimensions_and_experts_equal_one_process() -> None:
    # Expert parallel over tensor-parallel ranks of both data ranks of a stage; the second has routed blocks alone.
    text = "pp=2,dp=2,tp=2,ep=4,zero=3,mbs=4,recompute=full"
    order = tiny_order(text, devices=8, config=DEEPSEEK, job={**JOB, **CUT}, **OPTIONS, **BALANCED)
    found = compare(order, 8)
    assert found.within_limits(), found
