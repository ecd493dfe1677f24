"""Pins and bans of shards, offload and kinds of context parallelism; what they say of typing errors."""

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from planner.candidates import enumerate_candidates
from planner.evaluation import evaluate
from planner.request import SearchRequest
from planner.restrictions import read_restrictions
from planner.search_request import check_search

STATES = ["none", "optimizer", "parameters"]


def space(of, pins=None, bans=()):
    """The declared space and its legal meshes."""
    found = enumerate_candidates(of.engine, of.facts, read_restrictions(pins or {}, bans))
    return found.space, [batch for batch in found.batches if batch.size]


@pytest.fixture(scope="module")
def of(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=64, engine="fsdp2")


@pytest.mark.parametrize(
    ("pins", "bans", "expected"),
    [({"dp_shard": 8}, (), {8}), ({"dp_shard": "2..4"}, (), {2, 4}), ({}, ("dp_shard=2..16",), {1})],
)
def test_shards_are_pinned_as_replicas_are(of, pins, bans, expected):
    _, batches = space(of, pins, bans)
    assert {int(n) for batch in batches for n in batch.dp_shard} == expected
    assert all((batch.dp_shard * batch.dp_replicate == batch.dp).all() for batch in batches)


@pytest.mark.parametrize(
    ("pins", "bans", "offload", "moved"),
    [
        ({}, (), STATES, ["none"]),
        ({"offload": "none"}, (), ["none"], ["none"]),
        ({"offload": "none,optimizer:0.3"}, (), ["none", "optimizer:0.3"], ["none"]),
        ({"offload": "allowed"}, ("offload=optimizer", "act_offload=blocks"),
         ["none", "parameters"], ["none", "checkpoints"]),
        ({"act_offload": "blocks:5"}, (), STATES, ["blocks:5"]),
        ({"act_offload": "allowed", "recompute": "full"}, (), STATES, ["none", "checkpoints"]),
        ({"act_offload": "allowed", "recompute": "none"}, (), STATES,
         ["none", "blocks:8", "blocks:16", "blocks:24", "blocks"]),
    ],
)  # fmt: skip
def test_what_rests_on_the_host(of, pins, bans, offload, moved):
    found, _ = space(of, pins, bans)
    assert found["offload"] == offload
    assert found["act_offload"] == moved


def test_shares_are_tried_where_all_is_allowed(of):
    found, batches = space(of, {"offload": "allowed"})
    assert [text for text in found["offload"] if ":" in text] == [
        "optimizer:0.25",
        "optimizer:0.5",
        "optimizer:0.75",
    ]
    assert {batch.key.activations.text() for batch in batches} == set(found["act_offload"])


def test_ulysses_is_searched_under_deepspeed_and_goes_with_data_parallel_alone(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=64, engine="deepspeed")
    found, batches = space(of)
    assert found["cp_kind"] == ["ulysses"] and found["cp"] == [1, 2, 4, 8]
    wide = [batch.take(batch.cp > 1) for batch in batches]
    assert any(batch.size for batch in wide)
    assert all((batch.tp == 1).all() and (batch.pp == 1).all() for batch in wide)


@pytest.mark.parametrize(
    ("pins", "bans", "said"),
    [
        ({"ofload": "none"}, (), "did you mean offload"),
        ({"dp_shrad": 2}, (), "did you mean dp_shard"),
        ({"offload": "optimiser"}, (), "did you mean optimizer"),
        ({"act_offload": "block"}, (), "did you mean blocks"),
        ({"cp_kind": "ulyses"}, (), "did you mean ulysses"),
        ({"schedule": "1f1"}, (), "did you mean 1f1b"),
        ({}, ("act_offload=allowed",), "act_offload='allowed' is not known"),
    ],
)
def test_typing_errors_are_answered_with_the_nearest(pins, bans, said):
    with pytest.raises(BadInput, match=said):
        check_search(SearchRequest(pins=pins, bans=bans))


@pytest.mark.parametrize(
    ("engine", "source"),
    [
        ("megatron", "num_microbatches_calculator"),
        ("deepspeed", "runtime/config"),
        ("torchtitan", "trainer"),
        ("ddp", "would weigh more"),
        ("fsdp2", "would weigh more"),
    ],
)
def test_a_batch_that_does_not_divide_is_refused_with_the_engine_s_reason(make_situation, engine, source):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=100, engine=engine)
    with pytest.raises(IllegalStrategy, match="global batch 96 or 120") as refused:
        evaluate(of, parse_strategy("mbs=3"))
    assert source in next(v.source for v in refused.value.violations if v.rule == "batch")
