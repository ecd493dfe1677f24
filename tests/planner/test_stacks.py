"""Models of several stacks: encoder and decoder, vision towers before a decoder; what pipelines may do with them."""

from dataclasses import replace

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import changed, situate
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


def test_a_tower_stands_whole_on_the_first_stage_of_megatron(make_situation):
    """24 layers of CLIP before 32 of the decoder: Megatron's stages count the 32, torch's all 56."""
    job = {"seq_len": 2048, "global_batch": 256}
    whole = make_situation("llava-1.5-7b", "dgx-h100", 16, **job)
    divided = make_situation("llava-1.5-7b", "dgx-h100", 16, **job, engine="torch")
    assert (whole.model.num_blocks, divided.model.num_blocks) == (32, 56)
    assert whole.counts.parameters == divided.counts.parameters
    assert whole.model_flops == divided.model_flops
    with pytest.raises(IllegalStrategy, match=r"stages sum to 56 layers, but llava-1\.5-7b has 32"):
        evaluate(whole, parse_strategy("pp=4,stages=14+14+14+14"))
    tower = evaluate(whole, parse_strategy("pp=4,stages=5+9+9+9"))
    assert tower.memory.stages[0].layers[0] == "embedding"
    assert sum(stage.by_cause["weights"] for stage in tower.memory.stages) == pytest.approx(
        2 * whole.counts.parameters, rel=0.01
    )
    verify(Context.of(whole), tower)


def test_on_one_stage_a_tower_costs_what_it_did(make_situation):
    """No cut: the same bytes and seconds whether stages count the tower or not, its instants those of one layer."""
    job = {"seq_len": 2048, "global_batch": 256}
    of = make_situation("llava-1.5-7b", "dgx-h100", 16, **job)
    counted = replace(of, model=of.model.model_copy(update={"towers_with_embedding": False}))
    first, second = (evaluate(each, parse_strategy("tp=2,recompute=none")) for each in (of, counted))
    assert first.step_s == pytest.approx(second.step_s, rel=1e-3)
    assert first.memory.peak_allocated_bytes == pytest.approx(second.memory.peak_allocated_bytes, rel=0.01)


def test_the_search_balances_stages_around_a_whole_tower(make_situation):
    of = make_situation("llava-1.5-7b", "dgx-h100", 16, seq_len=2048, global_batch=256)
    pins = {"pp": 4, "vpp": 1, "tp": 1, "mbs": 1, "cp": 1}
    result = make_plan(of, SearchRequest(pins=pins))
    best = result.best.strategy
    assert result.status == "optimal" and sum(best.stages) == 32
    assert best.stages[0] < best.stages[1]  # it holds the tower beside
    verify(Context.of(of), result.best)
    again = changed(of, {"options": {}})
    assert again.model == of.model
    assert not replace_engine(of, "torch").model.towers_with_embedding


def replace_engine(of, engine):
    """The same request under another engine, from a model that was counted for the first."""
    return situate(of.model, of.cluster, of.job_request.model_copy(update={"engine": engine}))


def test_a_frozen_tower_costs_less_than_a_trained_one(make_situation):
    job = {"seq_len": 2048, "global_batch": 64}
    trained = make_situation("llava-1.5-7b", "dgx-h100", 8, **job)
    frozen = make_situation("llava-1.5-7b", "dgx-h100", 8, **job, options={"job.trainable": "frozen:vision"})
    plans = [
        make_plan(of, SearchRequest(pins={"pp": 2, "vpp": 1, "recompute": "none"})).best
        for of in (trained, frozen)
    ]
    assert plans[1].step_s < plans[0].step_s
    # The frozen tower has no backward: its stage takes more blocks beside it.
    assert plans[1].strategy.stages[0] >= plans[0].strategy.stages[0]
