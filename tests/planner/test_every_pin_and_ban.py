"""Every value of every axis pinned, banned and given as a range: what is left is a part of the space, nothing else."""

from collections import Counter

import numpy as np
import pytest

from cost_models.errors import BadInput
from planner.candidates import enumerate_candidates
from planner.make_plan import make_plan
from planner.relax.clash import clash, legal_values
from planner.request import SearchRequest
from planner.restrictions import read_restrictions, shown_value

NUMBERS = (
    "tp",
    "cp",
    "pp",
    "vpp",
    "ep",
    "etp",
    "dp",
    "dp_shard",
    "dp_replicate",
    "zero",
    "mbs",
    "sp",
    "schedule",
)
WORDS = {
    "cp_kind": lambda key: key.cp_kind,
    "order": lambda key: "-".join(key.order),
    "offload": lambda key: key.offload.text(),
    "act_offload": lambda key: key.activations.text(),
}
NAMES = ("cp_kind", "order", "schedule")
"""Axes whose first name that is left stands where there is nothing to divide."""
MODELS = {"megatron": "qwen3-30b-a3b", "torch": "llama-3.2-1b", "deepspeed": "llama-3.2-1b"}


def counts(of, pins, bans=()):
    """Legal meshes by axis and value."""
    found = enumerate_candidates(of.engine, of.facts, read_restrictions(pins, bans))
    seen = {axis: Counter() for axis in (*NUMBERS, *WORDS)}
    for batch in found.batches:
        for axis in NUMBERS:
            values, number = np.unique(getattr(batch, axis), return_counts=True)
            for value, count in zip(values.tolist(), number.tolist(), strict=True):
                seen[axis][shown_value(axis, value)] += count
        for axis, word in WORDS.items():
            if batch.size:
                seen[axis][word(batch.key)] += batch.size
    return seen, found


ENGINES = ("deepspeed", *(pytest.param(name, marks=pytest.mark.matrix) for name in ("megatron", "torch")))


@pytest.fixture(scope="module", params=ENGINES)
def space(request, make_situation):
    of = make_situation(
        MODELS[request.param], "dgx-h100", 4, seq_len=2048, global_batch=8, engine=request.param
    )
    free = {"act_offload": "none,blocks:4", "vpp": "1,2", "ep": "1..4", "mbs": "1,2", "recompute": "none"}
    return of, free, *counts(of, free)


def test_a_pin_and_a_ban_of_a_value_divide_the_space(space):
    of, free, every, found = space
    for axis, values in every.items():
        for value, number in values.items():
            alone, _ = counts(of, free | {axis: value})
            rest, _ = counts(of, free, (f"{axis}={value}",))
            assert set(alone[axis]) == {value} and alone[axis][value] >= number, (axis, value)
            left = {one: n for one, n in values.items() if one != value}
            if axis in NAMES:
                assert set(rest[axis]) == set(left), (axis, value)
            else:
                assert dict(rest[axis]) == left, (axis, value)
        if axis not in ("offload", "act_offload"):
            assert set(legal_values(found.families, axis)) == set(values), axis


def test_ranges_hold_what_lies_in_them(space):
    of, free, every, _ = space
    for axis in NUMBERS[:-2]:
        values = sorted(map(int, every[axis]))
        low, high = values[len(values) // 2], values[-1]
        inside = {str(n): every[axis][str(n)] for n in values if low <= n <= high}
        assert dict(counts(of, free | {axis: f"{low}..{high}"})[0][axis]) == inside, axis
        if low == values[0]:
            continue
        outside = {str(n): every[axis][str(n)] for n in values if n < low}
        assert dict(counts(of, free, (f"{axis}={low}..",))[0][axis]) == outside, axis


@pytest.mark.parametrize(
    ("pins", "bans", "left"),
    [
        ({}, ("recompute=none",), ["selective:core_attn", "selective:layernorm", "selective:layernorm+mlp", "full:K"]),
        ({}, ("recompute=none,full",), ["selective:core_attn", "selective:layernorm", "selective:layernorm+mlp"]),
        ({}, ("recompute=selective:mlp",), ["none", "selective:core_attn", "selective:layernorm", "full:K"]),
        ({}, ("recompute=selective",), ["none", "full:K"]),
        ({"recompute": "none,full"}, (), ["none", "full:K"]),
        ({"recompute": "selective"}, (), ["selective:core_attn"]),
        ({"recompute": "full"}, (), ["full"]),
        ({"recompute": "none"}, (), ["none"]),
        ({"recompute": "none,full"}, ("recompute=none",), ["full:K"]),
    ],
)  # fmt: skip
def test_recompute_of_the_space_and_of_its_plans(make_situation, pins, bans, left):
    of = make_situation("llama-3.2-1b", "dgx-h100", 4, seq_len=2048, global_batch=16)
    result = make_plan(of, SearchRequest(pins={"tp": 1, "cp": 1, **pins}, bans=bans, top_k=3))
    assert [word.partition(",")[0] for word in result.certificate.space["recompute"]] == left
    assert result.status == "optimal" and result.certificate.gap <= 1e-3
    kinds = {"full" if word.startswith("full") else word.partition(":")[0] for word in left}
    for plan in (result.best, *result.alternatives):
        text = plan.strategy.recompute.text(default_scopes=())
        assert text.partition(":")[0] in kinds
        assert not any(ban.partition("=")[2] in text for ban in bans)


@pytest.mark.parametrize("engine", ["megatron", "torch"])
def test_with_none_banned_a_block_is_recomputed_at_the_least_cost(make_situation, engine):
    """The plan is no slower than each mesh near it with one block recomputed, and its bound is true."""
    of = make_situation("llama-3.2-1b", "dgx-h100", 4, seq_len=2048, global_batch=16, engine=engine)
    bans = ("recompute=none,selective",)
    found = make_plan(of, SearchRequest(bans=bans))
    free = make_plan(of, SearchRequest())
    assert found.certificate.gap <= 1e-3
    assert sum(found.best.strategy.full_layers()) >= 1
    assert found.best.step_s >= free.best.step_s
    assert found.certificate.lower_bound_s <= found.best.step_s


@pytest.mark.parametrize(
    ("pins", "bans", "said"),
    [
        ({"tp": 3}, (), "pin tp=3 (1, 2, 4 or 8 would do) leaves nothing"),
        ({"vpp": 2, "schedule": "1f1b", "mbs": 1}, (),
         "pin vpp=2 (1 would do) and pin schedule=1f1b (interleaved would do) leave nothing together"),
        ({"tp": 8, "pp": 8}, (), "pin tp=8 (1 or 2 would do) and pin pp=8 (1 or 2 would do) leave nothing together"),
        ({"mbs": 1}, ("schedule=1f1b", "schedule=interleaved"),
         "ban schedule=1f1b and ban schedule=interleaved leave nothing together"),
        ({"dp_shard": 3}, (), "pin dp_shard=3 (1, 2, 4 or 8 would do) leaves nothing"),
        ({"zero": 3}, (), "pin zero=3 (0 or 1 would do) leaves nothing"),
        ({"schedule": "zb-v"}, ("tp=4",), "pin schedule=zb-v (1f1b or interleaved would do) leaves nothing"),
        ({"sp": True, "tp": 1}, (), "pin sp=true (false would do) and pin tp=1 (2, 4 or 8 would do)"),
    ],
)  # fmt: skip
def test_an_empty_space_names_what_clashes(make_situation, pins, bans, said):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64)
    assert said in clash(of, SearchRequest(pins=pins, bans=bans))


def test_the_clash_is_in_the_answer(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64)
    result = make_plan(of, SearchRequest(pins={"tp": 3}))
    assert result.status == "infeasible"
    assert "pin tp=3 (1, 2, 4 or 8 would do) leaves nothing" in result.reason
    assert not clash(of, SearchRequest())


@pytest.mark.parametrize(
    ("pins", "bans", "said"),
    [
        ({"offload": "none"}, ("offload=none",), "offload=none is pinned and banned"),
        ({"offload": "optimizer:0.5"}, ("offload=optimizer",), "offload=optimizer:0.5 is pinned and banned"),
        ({"cp_kind": "ring"}, ("cp_kind=ring",), "cp_kind=ring is pinned and banned"),
        ({"recompute": "selective:foo"}, (), "scope 'foo' is none of llama-3.1-8b's under megatron; use core_attn"),
        ({"recompute": "selective:mpl"}, (), "did you mean mlp"),
        ({}, ("recompute=full:3",), "ban none, selective, selective:scopes or full"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_is_said(make_situation, pins, bans, said):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64)
    with pytest.raises(BadInput) as refused:
        make_plan(of, SearchRequest(pins=pins, bans=bans))
    assert said in str(refused.value)


@pytest.mark.parametrize("engine", ["deepspeed", "fsdp1"])
def test_a_scope_that_an_engine_does_not_recompute_apart_is_refused(make_situation, engine):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, engine=engine, seq_len=4096, global_batch=64)
    with pytest.raises(BadInput, match=f"'layernorm' is none of llama-3.1-8b's under {engine}"):
        make_plan(of, SearchRequest(pins={"recompute": "selective:layernorm"}))
