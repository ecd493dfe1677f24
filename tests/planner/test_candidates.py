"""The declared space: every combination counted once, legal ones really legal, pins and bans obeyed."""

import random

import pytest

from cost_models.engines import Facts
from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import parse_strategy
from planner.candidates import enumerate_candidates, strategy_of
from planner.evaluation import evaluate
from planner.restrictions import read_restrictions
from planner.situation import situate


def candidates(of, pins=None, bans=()):
    return enumerate_candidates(
        of.engine, Facts(of.model, of.cluster, of.job), read_restrictions(pins or {}, bans)
    )


@pytest.fixture(scope="module")
def small(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 12, seq_len=4096, global_batch=24)


def test_total_is_legal_plus_illegal(small):
    found = candidates(small)
    assert found.total == found.num_legal + sum(found.illegal.values())
    assert found.num_legal > 0


def test_every_legal_mesh_passes_the_rules_one_by_one(small):
    facts = Facts(small.model, small.cluster, small.job)
    rng = random.Random(3)
    for batch in candidates(small).batches:
        for row in rng.sample(range(batch.size), min(40, batch.size)):
            n = int(batch.pp[row] * batch.vpp[row])
            stages = tuple(32 // n + (i < 32 % n) for i in range(n))
            strategy = strategy_of(batch, row, stages, Recompute(batch.key.scopes))
            assert small.engine.violations(facts, strategy) == ()


def test_pins_and_bans(small):
    found = candidates(small, {"tp": 2, "sp": True, "recompute": "none"}, ("pp=3", "schedule=interleaved"))
    for batch in found.batches:
        assert set(batch.tp.tolist()) <= {2}
        assert set(batch.sp.tolist()) <= {1}
        assert 3 not in batch.pp.tolist()
        assert set(batch.vpp.tolist()) <= {1}
        assert batch.key.scopes == ()


@pytest.mark.parametrize(
    ("pins", "bans", "named"),
    [
        ({"tpp": 8}, (), "tpp"),
        ({"tp": 0}, (), "tp=0"),
        ({"tp": "x"}, (), "tp=x"),
        ({"tp": "²"}, (), "not a whole number"),
        ({"tp": 10**9}, (), "to 999,999,999"),
        ({}, ("tp=" + "9" * 5000,), "not a whole number"),
        ({}, ("zero=-1",), "from 0"),
        ({}, ("recompute=none", "recompute=selective", "recompute=full"), "leave one"),
        ({"recompute": "selective:mlp"}, ("recompute=selective",), "pinned and banned"),
        ({"schedule": "fast"}, (), "fast"),
        ({}, ("recompute=sometimes",), "sometimes"),
        ({"recompute": "full:3"}, (), "full:3"),
    ],
)
def test_bad_pins_and_bans_are_named(pins, bans, named):
    with pytest.raises(BadInput, match=named):
        read_restrictions(pins, bans)


def test_without_none_the_bare_base_needs_full_recompute():
    left = read_restrictions({}, ("recompute=none",))
    assert left.needs_full
    assert left.scopes(((), ("mlp",)), True) == ((), ("mlp",))
    assert left.scopes(((), ("mlp",)), False) == (("mlp",),)
    assert not left.takes_recompute(Recompute())
    assert left.takes_recompute(Recompute((), (0, 1)))
    assert not left.takes_recompute(Recompute((), (0, 0)))
    assert read_restrictions({}, ("recompute=none,selective",)).scopes(((), ("mlp",)), True) == ((),)


def test_refusals_give_numbers_and_nearest_legal_values(make_situation):
    of = make_situation("bert-base", "dgx-h100", 8, seq_len=512, global_batch=64)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy("tp=8"))
    text = str(refused.value)
    assert "num_attention_heads 12 is not divisible by tp 8" in text
    assert "use tp 1, 2, 3, 4 or 6" in text


RULES = [
    ("tp=3", "world_size"),
    ("dp=3", "world_size"),
    ("mbs=7", "batch"),
    ("pp=2,vpp=2,mbs=16,dp=4", "schedule"),
    ("schedule=zb-h1,pp=2", "megatron_schedule"),
    ("ep=2", "experts_need_moe"),
    ("zero=3", "megatron_zero"),
    ("schedule=gpipe,pp=2", "megatron_schedule"),
    ("sp=true", "sp_needs_tp"),
    ("pp=2,stages=16+15", "stages_sum"),
    ("pp=2,stages=16+8+8", "stages_count"),
    ("recompute=selective:nothing", "recompute_scope"),
    ("recompute=full:2/selective", "recompute_mixed"),
    ("pp=2,recompute=full:2+3", "recompute_per_stage"),
    ("recompute=half", "recompute_syntax"),
    ("offload=parameters", "offload"),
    ("order=dp-tp", "order"),
]


@pytest.mark.parametrize(("text", "rule"), RULES)
def test_each_rule_refuses_by_name(make_situation, text, rule):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(text))
    assert rule in {v.rule for v in refused.value.violations}


def test_no_stage_ends_after_a_kind_that_forbids_it(make_situation):
    """A model's cut_after is kept: with it off for its blocks, only pp 1 is legal."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    uncut = {name: kind.model_copy(update={"cut_after": False}) for name, kind in of.model.kinds.items()}
    whole = situate(of.model.model_copy(update={"kinds": uncut}), of.cluster, of.job_request)
    with pytest.raises(IllegalStrategy, match="cut_after"):
        evaluate(whole, parse_strategy("pp=2"))
    assert evaluate(whole, parse_strategy("tp=2,pp=1")).verdict == "fits"
    assert all(set(batch.pp.tolist()) <= {1} for batch in candidates(whole).batches)


def test_ranges_and_lists_of_pins_and_bans(small):
    """Of 12 devices tp may be 1, 2, 3, 4, 6 or 12, of which the search itself tries those of a node, up to 8."""
    found = candidates(
        small, {"tp": "2..12", "mbs": "1,2", "dp": "2.."}, ("pp=3..4", "zero=2..", "cp=5..5,6")
    )
    tried = {
        axis: {n for batch in found.batches for n in getattr(batch, axis).tolist()} for axis in ("dp", "mbs")
    }
    assert found.space["tp"] == [2, 3, 4, 6, 12]
    assert tried["mbs"] == {1, 2}
    assert min(tried["dp"]) >= 2
    assert not {3, 4} & set(found.space["pp"])
    assert not {6} & set(found.space["cp"])


@pytest.mark.parametrize("value", ["8..2", "..", "1..x", "1,", "1..2..3"])
def test_ranges_that_say_nothing_are_refused(value):
    with pytest.raises(BadInput, match="tp="):
        read_restrictions({"tp": value}, ())


def test_axes_of_words_are_pinned_and_banned_in_one_spelling():
    some = read_restrictions(
        {"cp_kind": "ulysses", "offload": "optimizer:0.50,none"}, ("order=tp-cp-ep-pp-dp",)
    )
    assert some.takes_text("cp_kind", "ulysses")
    assert not some.takes_text("cp_kind", "ring")
    assert some.words("offload", ("none",)) == ("optimizer:0.5", "none")
    assert some.words("order", ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")) == ("tp-cp-ep-dp-pp",)
    with pytest.raises(BadInput, match="ring, allgather, ulysses"):
        read_restrictions({"cp_kind": "star"}, ())
    with pytest.raises(BadInput, match="each axis once"):
        read_restrictions({"order": "tp-dp"}, ())


@pytest.mark.parametrize(("engine", "kind"), [("torch", "ring"), ("torchtitan", "allgather")])
def test_where_nothing_is_divided_a_strategy_says_what_it_says_when_nothing_is_asked(
    make_situation, engine, kind
):
    """One stage has one schedule, one context rank one kind: those that `evaluate` fills in."""
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32, engine=engine)
    single = [
        (batch.key.cp_kind, batch.schedule_name(row).value)
        for batch in candidates(of).batches
        for row in range(batch.size)
        if batch.pp[row] == 1 and batch.cp[row] == 1
    ]
    assert set(single) == {(kind, "1f1b")}
