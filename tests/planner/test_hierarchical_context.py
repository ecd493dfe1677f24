"""Heads exchanged inside groups of context ranks, a ring across them: messages, legality, search, files."""

import numpy as np
import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.mesh import batch_of, mesh_key
from cost_models.operators.base import Axis, Collective, Phase, Shard
from cost_models.operators.context import inner_ranks, is_kind
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.formats.export import PlannedRun
from planner.formats.megatron.write import write_megatron
from planner.formats.recipes.write import fields_of
from planner.formats.registry import read_settings
from planner.formats.settings import Beside
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.verify import verify


@pytest.fixture(scope="module")
def long(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 64, seq_len=131072, global_batch=16)


def test_words():
    assert inner_ranks("hierarchical:4") == 4
    assert not inner_ranks("ulysses")
    assert is_kind("ring") and is_kind("hierarchical:12")
    assert not any(map(is_kind, ("hierarchical", "hierarchical:0", "hierarchical:x", "a2a+p2p")))
    with pytest.raises(IllegalStrategy, match="use ring, allgather, ulysses, hierarchical:N"):
        parse_strategy("cp=4,cp_kind=hierarchy")


def test_messages_of_a_layer(long):
    """8,192 tokens a rank of 16, 32 heads of 128 and 8 of keys and values, groups of 4.

    Exchanged: q, output (8,192 x 4,096 each), k and v (8,192 x 1,024 each), 2 bytes. Round the ring of four groups: k
    and v of four ranks' tokens and a quarter of the heads, three times, twice as much backward.
    """
    attention = next(op for op in long.model.kinds["dense"].operators if op.name == "core_attention")
    at = Shard(1.0, 131072.0, 131072.0, 0, 1.0, 16.0, 1.0, 1.0, 0.0)
    found = attention.messages(at, long.engine.style(long.job, "hierarchical:4"))
    keys = 2 * 2 * 8192 * 1024
    exchanged = 2 * 2 * 8192 * 4096 + keys
    assert [(m.phase, m.collective, m.axis, float(m.bytes), float(np.asarray(m.count))) for m in found] == [
        (Phase.FORWARD, Collective.ALL_TO_ALL, Axis.CP_INNER, exchanged, 1.0),
        (Phase.INPUT_GRADIENT, Collective.ALL_TO_ALL, Axis.CP_INNER, exchanged, 1.0),
        (Phase.FORWARD, Collective.SEND_RECEIVE, Axis.CP_OUTER, keys, 3.0),
        (Phase.INPUT_GRADIENT, Collective.SEND_RECEIVE, Axis.CP_OUTER, 2.0 * keys, 3.0),
    ]


def test_groups_are_neighbours(long):
    strategy = evaluate(long, parse_strategy("tp=2,cp=16,cp_kind=hierarchical:4,recompute=full")).strategy
    batch = batch_of([strategy], mesh_key(strategy))
    spans = [batch.span(axis) for axis in (Axis.CP, Axis.CP_INNER, Axis.CP_OUTER)]
    assert [(int(s.size[0]), int(s.stride[0])) for s in spans] == [(16, 2), (4, 2), (4, 8)]


def test_it_lies_between_the_ring_and_ulysses(make_situation):
    """32 key/value heads go round in full: the larger the groups inside a node, the fewer hops leave it."""
    of = make_situation("llama-2-7b", "dgx-h100", 64, seq_len=131072, global_batch=16)
    kinds = ("ring", "hierarchical:2", "hierarchical:4", "hierarchical:8", "ulysses")
    found = [evaluate(of, parse_strategy(f"cp=16,recompute=full,cp_kind={kind}")) for kind in kinds]
    shown = [one.breakdown_s["cp_communication"] for one in found]
    assert shown[:4] == sorted(shown[:4], reverse=True)
    used = [one.memory.stages[0].by_cause["activations"] for one in found]
    assert used[1:] == [used[-1]] * 4  # recomputed in full a layer keeps its input under every kind
    for one in found:
        assert one.fits
        verify(Context.of(of), one)


@pytest.mark.parametrize(
    ("engine", "text", "rule"),
    [
        ("megatron", "cp=16,cp_kind=hierarchical:3", "cp_hierarchical_sizes"),
        ("megatron", "cp=16,cp_kind=hierarchical:16", "cp_hierarchical_sizes"),
        ("megatron", "tp=4,cp=16,cp_kind=hierarchical:4", "cp_hierarchical_heads"),
        ("torch", "cp=16,cp_kind=hierarchical:4", "cp_hierarchical"),
        ("torchtitan", "cp=16,cp_kind=hierarchical:4", "cp_hierarchical"),
        ("deepspeed", "cp=16,cp_kind=hierarchical:4", "cp_hierarchical"),
    ],
)
def test_refusals_name_the_rule(make_situation, engine, text, rule):
    of = make_situation("llama-3.1-8b", "dgx-h100", 64, seq_len=131072, global_batch=16, engine=engine)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(text))
    found = {violation.rule: violation for violation in refused.value.violations}
    assert rule in found and found[rule].nearest


def test_the_search_takes_it_where_it_is_asked_for(long):
    pins = {"cp": 16, "tp": 1, "mbs": 1, "pp": 1, "recompute": "full"}
    plain = make_plan(long, SearchRequest(pins=pins, explain=False))
    asked = make_plan(long, SearchRequest(pins={**pins, "cp_kind": "allowed"}, explain=False))
    named = make_plan(long, SearchRequest(pins={**pins, "cp_kind": "hierarchical:8"}, explain=False))
    assert "hierarchical:8" not in plain.certificate.space["cp_kind"]
    assert asked.certificate.space["cp_kind"][3:] == ["hierarchical:2", "hierarchical:4", "hierarchical:8"]
    assert asked.best.strategy.cp_kind == named.best.strategy.cp_kind == "hierarchical:8"
    assert asked.best.step_s <= named.best.step_s * 1.001 < plain.best.step_s
    banned = make_plan(
        long,
        SearchRequest(pins={**pins, "cp_kind": "allowed"}, bans=("cp_kind=hierarchical",), explain=False),
    )
    assert banned.certificate.space["cp_kind"] == plain.certificate.space["cp_kind"]


@pytest.mark.parametrize(
    ("sizes", "kind"),
    [("4 4", "hierarchical:4"), ("[2 8]", "hierarchical:2"), ("1 16", "ring"), ("16 1", "ulysses")],
)
def test_arguments_are_read(long, sizes, kind):
    run = PlannedRun(
        long, evaluate(long, parse_strategy("cp=16,cp_kind=hierarchical:4,recompute=full")).strategy
    )
    script = write_megatron(run).files["train.sh"]
    assert "--cp-comm-type a2a+p2p\n" in script
    changed = script.replace(
        "hierarchical-context-parallel-sizes 4 4", f"hierarchical-context-parallel-sizes {sizes}"
    )
    assert read_settings(changed, "megatron", Beside(64, None, {}, "")).strategy.cp_kind == kind
    assert not [loss for loss in write_megatron(run).losses if "cp_kind" in loss]
    assert fields_of(run, "bridge")["model.hierarchical_context_parallel_sizes"] == ["4", "4"]
    for wrong in ("4 8", "16", "a b"):
        with pytest.raises(
            BadInput, match="product is --context-parallel-size 16, the inner one first, as in 4 4"
        ):
            read_settings(script.replace("sizes 4 4", f"sizes {wrong}"), "megatron", Beside(64, None, {}, ""))
