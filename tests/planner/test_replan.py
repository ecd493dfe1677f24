"""Planning again after a lost node: the same global batch, what the checkpoint needs, spare devices."""

import pytest

from cost_models.errors import BadInput
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.replan import replan
from planner.request import SearchRequest
from planner.situation import changed

FEW = {"cp": 1, "mbs": 1, "vpp": 1, "offload": "none", "order": "tp-cp-ep-dp-pp", "dp_replicate": 1}
"""Pins that keep the searches short."""


@pytest.fixture(scope="module")
def old(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 32, seq_len=8192, global_batch=128)
    return of, evaluate(of, parse_strategy("tp=4,pp=2,recompute=selective")).strategy


def test_any_layout_may_come_and_says_what_is_cut_anew(old):
    before, strategy = old
    found = replan(old, changed(before, {"devices": 24}), SearchRequest(pins=FEW), "any", None)
    best = found.result.best
    assert best is not None
    assert found.devices[0] == 32
    assert found.devices[1] == 24 >= found.devices[2] == best.strategy.world_size
    assert found.situation.job.global_batch == 128
    for key in ("tp", "pp", "vpp", "dp"):
        assert (key in found.resharded()) == (getattr(best.strategy, key) != getattr(strategy, key))
    assert "global batch stays 128" in found.sentence()


def test_the_same_shards_keep_their_degrees_and_stages(old):
    before, strategy = old
    found = replan(old, changed(before, {"devices": 24}), SearchRequest(pins=FEW), "same", None)
    best = found.result.best
    assert best is not None
    # 24 = 4 x 2 x 3, but dp 3 does not go into 128 sequences: 16 devices are used.
    assert (best.strategy.tp, best.strategy.pp, best.strategy.vpp) == (4, 2, 1)
    assert best.strategy.world_size == 16
    assert best.strategy.stages == strategy.stages
    assert set(found.resharded()) <= {"dp", "zero"}
    assert found.to_json()["checkpoint"]["loading"] == "same"


def test_another_padding_of_the_vocabulary_is_said(make_situation):
    # 128,256 rows are whole multiples of 128 x tp for no tp above 2: 128,512 = 251 x 128 x 4 at tp 4, 128,256 at tp 1.
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64)
    strategy = evaluate(of, parse_strategy("tp=4,recompute=full")).strategy
    found = replan(
        (of, strategy), changed(of, {"devices": 8}), SearchRequest(pins={**FEW, "tp": 1}), "any", None
    )
    assert any("128,512" in note for note in found.notes)


def test_another_global_batch_is_refused(old):
    before, _ = old
    with pytest.raises(BadInput, match="keeps it"):
        replan(old, changed(before, {"global_batch": 64}), SearchRequest(), "any", None)
