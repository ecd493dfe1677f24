"""Models of several stacks: encoder and decoder, vision towers before a decoder; what pipelines may do with them."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.verify import verify


def test_an_encoder_and_a_decoder_are_not_interleaved_by_megatron(make_situation):
    of = make_situation("t5-3b", "dgx-h100", 8, seq_len=512, global_batch=64)
    with pytest.raises(IllegalStrategy, match="megatron_encoder_decoder"):
        evaluate(of, parse_strategy("pp=2,vpp=2"))
    result = make_plan(of, SearchRequest(pins={"pp": 4}))
    best = result.best.strategy
    assert result.status == "optimal"
    assert (best.vpp, sum(best.stages)) == (1, 48)  # 24 blocks of the encoder, 24 of the decoder
    assert result.certificate.meshes_illegal["megatron_encoder_decoder"] > 0
    # A decoder's block crosses to the encoder, too: the encoder's stages hold more blocks.
    assert best.stages[0] > best.stages[-1]
    verify(Context.of(of), result.best)


def test_other_engines_interleave_them(make_situation):
    of = make_situation("t5-3b", "dgx-h100", 8, seq_len=512, global_batch=64, engine="torch")
    assert evaluate(of, parse_strategy("pp=2,vpp=2")).fits


@pytest.mark.parametrize(
    ("engine", "text", "warned"),
    [
        ("megatron", "pp=4,stages=14+14+14+14", True),
        ("megatron", "pp=4,stages=24+11+11+10", False),
        ("megatron", "pp=1", False),
        ("torch", "pp=4,stages=14+14+14+14", False),
    ],
)
def test_a_divided_tower_is_warned_of_where_the_engine_keeps_it_whole(make_situation, engine, text, warned):
    of = make_situation("llava-1.5-7b", "dgx-h100", 16, seq_len=2048, global_batch=256, engine=engine)
    found = evaluate(of, parse_strategy(text)).warnings
    assert any("24 layers of the towers" in warning for warning in found) is warned


def test_a_frozen_tower_costs_less_than_a_trained_one(make_situation):
    job = {"seq_len": 2048, "global_batch": 64}
    trained = make_situation("llava-1.5-7b", "dgx-h100", 8, **job)
    frozen = make_situation("llava-1.5-7b", "dgx-h100", 8, **job, options={"job.trainable": "frozen:vision"})
    plans = [
        make_plan(of, SearchRequest(pins={"pp": 2, "vpp": 1, "recompute": "none"})).best
        for of in (trained, frozen)
    ]
    assert plans[1].step_s < plans[0].step_s
    # The frozen tower has no backward: its stages take more blocks.
    assert plans[1].strategy.stages[0] >= plans[0].strategy.stages[0]
