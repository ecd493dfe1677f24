"""The twin of an order: the same layout and schedule, small sizes, fp32, synthetic data."""

import pytest

from cost_models.errors import BadInput
from cost_models.specs.job import Precision
from planner.executor.twin import twin_of
from tests.planner.executor.orders import LLAMA, tiny_order
from tests.planner.executor.test_experts import PREDICTING

DEEP = {**LLAMA, "num_hidden_layers": 11, "hidden_size": 512, "intermediate_size": 1376, "vocab_size": 32000}


def test_keeps_the_layout_and_shrinks_the_rest() -> None:
    strategy = "tp=2,pp=2,sp=true,stages=6+5,recompute=full:3+0,mbs=4"
    job = {"seq_len": 4096, "global_batch": 256, "precision": "bf16"}
    order = tiny_order(strategy, devices=8, config=DEEP, job=job, dropout=True, steps=3)
    twin = twin_of(order)
    kept = ("tp", "pp", "vpp", "dp", "cp", "zero", "sp", "schedule", "order", "dp_shard", "offload")
    assert all(getattr(twin.strategy, key) == getattr(order.strategy, key) for key in kept)
    # Uneven stages stay uneven, and a stage recomputed in part stays so.
    assert twin.strategy.stages == (2, 1)
    assert twin.strategy.full_layers() == (1, 0)
    # 32 micro-batches become twice the two stages; two sequences each on two data-parallel ranks.
    assert order.num_micro_batches == 32
    assert twin.num_micro_batches == 4
    assert twin.situation.job.global_batch == 4 * 2 * 2
    assert twin.situation.job.seq_len == 16
    assert twin.situation.job.precision is Precision.FP32
    assert twin.situation.counts.parameters < 100_000
    assert twin.options.dropout is False
    assert twin.options.steps == 3


def test_an_even_pipeline_stays_even() -> None:
    order = tiny_order("pp=2,vpp=2,schedule=interleaved", devices=2, config={**DEEP, "num_hidden_layers": 12})
    twin = twin_of(order)
    assert order.strategy.stages == (3, 3, 3, 3)
    assert twin.strategy.stages == (2, 2, 2, 2)


def test_full_recomputation_of_every_block_stays_that() -> None:
    twin = twin_of(tiny_order("recompute=full", config=DEEP))
    assert twin.strategy.full_layers() == twin.strategy.stages


def test_a_factory_has_no_twin() -> None:
    order = tiny_order(factory="somewhere:model")
    with pytest.raises(BadInput, match="no small twin"):
        twin_of(order)


def test_experts_and_positions_stay_divided_alike() -> None:
    # ep 3 and etp 2 of 12 experts: the twin's six are divided by both degrees; 2 x cp x tp positions a unit.
    config = {**DEEP, "model_type": "mixtral", "num_local_experts": 12, "num_experts_per_tok": 4}
    job = {"seq_len": 4096, "global_batch": 24, "options": {"job.moe_capacity_factor": 1.25}}
    order = tiny_order("tp=2,cp=2,dp=3,ep=3,etp=2,cp_kind=allgather", devices=12, config=config, job=job)
    twin = twin_of(order)
    kept = ("tp", "cp", "dp", "ep", "etp", "cp_kind", "zero")
    assert all(getattr(twin.strategy, key) == getattr(order.strategy, key) for key in kept)
    assert twin.situation.model.num_experts % 3 == 0 < twin.situation.model.num_experts <= 12
    assert twin.situation.job.options.moe_capacity_factor == 1.25
    assert twin.situation.job.seq_len % (2 * 2 * 2) == 0
    experts = next(op for op in twin.situation.model.kinds["moe"].operators if op.name == "expert_down")
    assert experts.in_features % 2 == 0


def test_prediction_layers_stay_where_they_are_trained() -> None:
    job = {"seq_len": 1024, "global_batch": 8, "options": {"job.train_mtp": True}}
    twin = twin_of(tiny_order("pp=2,schedule=1f1b", devices=2, config=PREDICTING, job=job))
    assert twin.predictions == 2
    projection = next(op for op in twin.situation.model.kinds["mtp"].operators if op.name == "eh_proj")
    assert projection.in_features == 2 * twin.situation.model.hidden_size
