"""Which ranks an axis joins under each order of the axes, and that the order is priced."""

import numpy as np
import pytest

from cost_models.mesh import batch_of, mesh_key
from cost_models.operators.base import Axis
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, complete_legal, evaluate


@pytest.fixture(scope="module")
def llama(make_situation):
    return make_situation("llama-3.1-70b", "dgx-h100", 64, seq_len=8192, global_batch=64)


def mesh(llama, text):
    strategy = complete_legal(Context.of(llama), parse_strategy(text))
    return batch_of([strategy], mesh_key(strategy))


@pytest.mark.parametrize(
    ("text", "stage", "shard"),
    [
        # order inner first: tp 4, dp 4, pp 4: a stage is 16 ranks further, replicas 4 apart
        ("tp=4,pp=4", 16, (4, 4)),
        ("tp=4,pp=4,order=tp-cp-ep-pp-dp", 4, (4, 16)),
        # cp 2 beside dp 2: 4 ranks, 4 apart; with pp between them spread over 64 ranks: 16 apart
        ("tp=4,cp=2,pp=4", 16, (4, 4)),
        ("tp=4,cp=2,pp=4,order=tp-cp-ep-pp-dp", 8, (4, 16)),
    ],
)
def test_strides(llama, text, stage, shard):
    meshes = mesh(llama, text)
    assert meshes.stage_stride.tolist() == [stage]
    span = meshes.data_spans()[0]
    assert (int(np.asarray(span.size)[0]), int(np.asarray(span.stride)[0])) == shard
    assert int(np.asarray(meshes.span(Axis.TP).stride)[0]) == 1


def test_the_order_moves_sends_in_and_reductions_out(llama):
    outside, inside = (
        evaluate(llama, parse_strategy(f"tp=2,pp=4,vpp=2,order={order}"))
        for order in ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
    )
    assert inside.breakdown_s["pp_communication"] < outside.breakdown_s["pp_communication"]
    assert inside.breakdown_s["dp_communication"] > outside.breakdown_s["dp_communication"]
    assert inside.breakdown_s["compute"] == pytest.approx(outside.breakdown_s["compute"], rel=1e-12)
