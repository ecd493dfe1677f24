"""Families hold exactly the meshes that break no rule, and count the others, as a list of every mesh would."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from cost_models.engines.rules import Rule
from cost_models.mesh import MeshBatch
from planner.candidates import enumerate_candidates
from planner.evaluation import Context
from planner.families import AXES, CrossedRule, sort_out
from planner.restrictions import read_restrictions

CASES = [
    ("mixtral-8x7b", 12, "megatron", 4096),
    ("mixtral-8x7b", 8, "torch", 2048),
    ("llama-3.1-8b", 6, "torchtitan", 4096),
    ("llama-3.1-8b", 8, "deepspeed", 4096),
    ("llama-3.1-8b", 4, "fsdp1", 4096),
]


def listed(context, families) -> Counter:
    """Every combination of every row with every option that breaks no rule, one mesh at a time."""
    found: Counter = Counter()
    options, rules = families.options, context.situation.engine.rules()
    for kind, (row, state, pipe) in itertools.product(
        range(len(options.kinds)),
        itertools.product(range(families.rows.size), range(len(options.states)), range(len(options.pipes))),
    ):
        replicate = options.states[state].replicate
        if int(families.rows.dp[row]) % replicate:
            continue
        mesh = families.batch(kind, *(np.array([x]) for x in (row, state, pipe)))
        found["legal"] += not any(rule.broken(context.facts, mesh)[0] for rule in rules)
    return found


@pytest.mark.parametrize(("model", "devices", "engine", "seq_len"), CASES)
def test_every_mesh_that_the_families_hold_keeps_every_rule(make_situation, model, devices, engine, seq_len):
    of = make_situation(model, "dgx-h100", devices, engine=engine, seq_len=seq_len, global_batch=24)
    context = Context.of(of)
    found = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ()))
    assert found.total == found.num_legal + sum(found.illegal.values())
    batches = found.families.everything()
    assert sum(batch.size for batch in batches) == found.num_legal
    for batch in batches:
        if batch.size:
            broken = [rule.name for rule in of.engine.rules() if rule.broken(context.facts, batch).any()]
            assert broken == []
        columns = np.stack([getattr(batch, axis) for axis in AXES])
        assert np.unique(columns, axis=1).shape == columns.shape


def test_counts_equal_those_of_a_list(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 4, engine="megatron", seq_len=2048, global_batch=4)
    context = Context.of(of)
    pins = {"mbs": "1,2", "vpp": "1..2", "recompute": "none", "cp": "1,2"}
    families = enumerate_candidates(of.engine, context.facts, read_restrictions(pins, ())).families
    every = families.kinds_legal  # rows that break a rule of their own are not listed
    plain = families.rows.cp == 1
    kinds = [key.cp_kind for key in families.options.kinds]
    assert not every[plain][:, [kind != kinds[0] for kind in kinds]].any()
    alike = listed(context, families)["legal"]
    doubled = 0
    for row in range(families.rows.size):
        legal = int(families.num_pipes[row]) * int(families.num_states[row])
        kept, all_kinds = int(every[row].sum()), len(kinds)
        if families.rows.cp[row] == 1 or families.rows.pp[row] == 1 or families.rows.dp[row] == 1:
            doubled += legal * (all_kinds - kept)
    assert alike == families.size + doubled


def test_a_rule_that_crosses_two_groups_of_axes_is_refused(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 4, seq_len=2048, global_batch=4)
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families

    def crossed(facts: object, meshes: MeshBatch) -> np.ndarray:
        return (meshes.zero > 0) & (meshes.vpp > 1)

    class Crossing(type(of.engine)):
        def rules(self) -> tuple[Rule, ...]:
            return (Rule("crossed", "", crossed, lambda *_: ("", ())),)

    masks = (families.pipes_legal, families.states_legal, families.kinds_legal)
    with pytest.raises(CrossedRule, match="crossed"):
        sort_out(Crossing(of.job), context.facts, families.rows, families.options, masks)


def test_samples_are_members(make_situation):
    of = make_situation("mixtral-8x7b", "dgx-h100", 8, seq_len=4096, global_batch=24)
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    for batch in families.sampled(random.Random(0), 6, 40):
        assert not any(rule.broken(context.facts, batch).any() for rule in of.engine.rules())
