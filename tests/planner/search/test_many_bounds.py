"""Bounds of many meshes at once against what they leave out: ranks, simulated cuts, prices of states, moves."""

import random
from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest

from cost_models.mesh import SCHEDULES
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.rows import model_rows
from cost_models.schedule import ScheduleName
from planner.candidates import enumerate_candidates
from planner.evaluation import Context
from planner.restrictions import read_restrictions
from planner.search.bounding.cut_bounds import (
    RowTimes,
    TellingRanks,
    _held,
    _least_cut,
    declared_bounds,
    telling_ranks,
)
from planner.search.bounding.mesh_bounds import CHUNK, batch_sums
from planner.search.bounding.path_pool import PathPool, point_of
from planner.search.bounding.pool_bounds import MemberTimes, PoolBounds
from planner.search.bounding.program_bounds import program_bounds
from planner.search.bounding.state_block import Parts, RowBytes, StateBlock, fewest_replicas, state_points
from planner.search.mesh_table import without_full
from planner.search.problem import chunks_of, price_many
from planner.search.windows import declared_cuts

GREEDY = import_module("planner.search.greedy")  # the package has a function of that name
MOE = {"seq_len": 4096, "global_batch": 128, "options": {"engine.ep_overlap": True}}
CASES = [
    ("llama-3.1-8b", "dgx-h100", 16, {"seq_len": 4096, "global_batch": 64}),
    ("mixtral-8x7b", "dgx-h100", 32, MOE),
    ("deepseek-v3", "dgx-h800", 256, {"seq_len": 4096, "global_batch": 1024}),
]


def batches_of(of, context, pins=None):
    families = enumerate_candidates(of.engine, context.facts, read_restrictions(pins or {}, ())).families
    return [batch for batch in families.sampled(random.Random(5), 6, 24) if batch.size]


@pytest.mark.parametrize(
    ("name", "pp", "vpp"),
    [("interleaved", 4, 3), ("interleaved", 8, 2), ("zb-v", 4, 2), ("zb-h1", 6, 1), ("dualpipe-v", 4, 2)],
)
@pytest.mark.parametrize("blocks", [(1,) * 26, (1,) * 3 + (2,) * 23, (1, 1, 2) * 9])
def test_the_telling_ranks_give_the_bound_of_all_ranks(make_situation, name, pp, vpp, blocks):
    pricer = Context.of(make_situation(*CASES[0][:3], **CASES[0][3])).pricer
    rng, size, rows = np.random.default_rng(3), 40, 4
    seconds = {f: rng.uniform(0.1, 1.0, (rows, size)) for f in RowTimes.__dataclass_fields__}
    scalars = {f: rng.uniform(0.0, 0.5, size) for f in ("send_s", "sync_overlap", "sync_exposed_min")}
    times = RowTimes(**seconds | scalars)
    schedule = SCHEDULES.index(ScheduleName(name))
    held, before = _held(schedule, pp, vpp, blocks, rows)
    every = TellingRanks(held, before, np.broadcast_to(np.arange(pp, dtype=float), held.shape[:2]))
    few = telling_ranks(schedule, pp, vpp, blocks, rows)
    assert few.place.size <= every.place.size
    micro, spared = rng.integers(8, 64, size).astype(float), rng.uniform(0.0, 0.2, size)
    bounds = [_least_cut(pricer, (schedule, vpp), ranks, times, micro, spared) for ranks in (few, every)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES)
def test_paths_of_one_mesh_bound_every_cut_of_the_others(make_situation, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job)
    context, rng, pool, tried = Context.of(of), random.Random(1), PathPool(), 0
    bounds = PoolBounds(context.pricer, model_rows(of.model, of.job), pool)
    for batch in batches_of(of, context, {"schedule": "interleaved", "vpp": "2..4"}):
        priced = context.pricer.price(batch)
        rules = batch_rules(context.pricer, priced)
        meshes = [without_full(mesh_costs(context.pricer, priced, rules, row)) for row in range(batch.size)]
        for mesh in rng.sample(meshes, 6):
            cuts = declared_cuts(mesh.table.num_blocks, mesh.pp * mesh.vpp)
            for _ in range(3 if len(cuts) else 0):
                pool.learn(mesh, chunks_of(mesh, cuts, 0 * cuts), rng.randrange(len(cuts)))
        for row, mesh in enumerate(meshes[:12]):
            cuts = declared_cuts(mesh.table.num_blocks, mesh.pp * mesh.vpp)
            if not len(cuts) or mesh.pp * mesh.num_micro_batches > 2048:
                continue
            members = MemberTimes.of(priced, rules).take(np.array([row]))
            (bound_s,) = bounds.of(point_of(mesh), members).tolist()
            steps = price_many(mesh, cuts, 0 * cuts).step_s
            assert bound_s <= steps.min() * (1 + 1e-9)
            tried += bound_s > 0.9 * steps.min()
    assert tried > 3


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES)
def test_states_short_of_memory_without_their_kernels_are_short_with_them(
    make_situation, model, cluster, devices, job
):
    of = make_situation(model, cluster, devices, **job)
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    rows = model_rows(of.model, of.job)
    counts = np.bincount(rows.layers, minlength=len(rows.rows)).astype(float)
    rng, short_ones = np.random.default_rng(0), 0
    at, state = np.nonzero(families.states_legal)
    none = [i for i, s in enumerate(families.options.states) if not s.offload.optimizer]
    at, state = at[np.isin(state, none)], state[np.isin(state, none)]
    some = rng.choice(at.size, min(600, at.size, CHUNK), replace=False)
    at, state = at[some], state[some]
    parts = Parts(context.pricer, families, counts, state_points(context.pricer, families.rows))
    block = StateBlock.of(parts, 0, at, state, lambda: False)
    batch = families.batch(0, at, state, np.zeros_like(at))
    work = context.pricer.work(batch)
    short = block.short(RowBytes.of(work, counts), np.arange(at.size), families.rows.pp[at].astype(float))
    priced = context.pricer.price(batch)
    same = context.pricer.price(batch, work, block.take(np.arange(at.size)))
    sums = [batch_sums(context.pricer, p, batch_rules(context.pricer, p)) for p in (priced, same)]
    for name in sums[0].__dataclass_fields__:
        assert getattr(sums[0], name) == pytest.approx(getattr(sums[1], name), rel=1e-12), name
    assert (sums[0].short_bytes[short] > 0.0).all()
    short_ones += int(short.sum())
    assert short_ones > 0 or model.startswith("llama")


def test_moves_that_paths_rule_out_change_nothing(make_situation, monkeypatch):
    of = make_situation(*CASES[1][:3], **CASES[1][3])
    context, rng = Context.of(of), random.Random(4)
    for batch in batches_of(of, context, {"pp": "4,8", "cp": 1}):
        priced = context.pricer.price(batch)
        rules = batch_rules(context.pricer, priced)
        for row in rng.sample(range(batch.size), 3):
            mesh = mesh_costs(context.pricer, priced, rules, row)
            roomy = replace(mesh, rules=replace(mesh.rules, allocated_limit_bytes=1e15))
            count = mesh.pp * mesh.vpp
            if mesh.num_micro_batches > 64 or count > mesh.table.num_blocks:
                continue
            sizes = np.full(count, 1)
            sizes[rng.randrange(count)] += mesh.table.num_blocks - count
            for one in (mesh, roomy):
                rule = GREEDY.full_rule(one, 0, None)
                found = []
                for few in (GREEDY.FEW_CUTS, 10**9):
                    monkeypatch.setattr(GREEDY, "FEW_CUTS", few)
                    found.append(GREEDY.improve(one, sizes[None], rule, PathPool(), 12))
                monkeypatch.undo()
                assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["megatron", "deepspeed", "torch", "torchtitan"])
@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES[:2])
def test_more_replicas_never_need_less_memory(make_situation, engine, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job | {"engine": engine, "options": {}})
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    states, rows = families.options.states, np.arange(0, families.rows.size, 7)
    counts = np.ones(len(model_rows(of.model, of.job).rows))
    parts = Parts(context.pricer, families, counts, state_points(context.pricer, families.rows))
    first, rest = fewest_replicas(families, list(range(len(states))))
    for few, more in ((few, more) for few in first for more in rest):
        alike = [(states[at].zero, states[at].offload) for at in (few, more)]
        both = rows[families.states_legal[rows][:, [few, more]].all(1)]
        if alike[0] != alike[1] or not both.size:
            continue
        least, most = (
            StateBlock.of(parts, 0, both, np.full_like(both, at), lambda: False) for at in (few, more)
        )
        assert (least.static_bytes[least.place] <= most.static_bytes[most.place] * (1 + 1e-12)).all()
        assert (least.room_bytes >= most.room_bytes * (1 - 1e-12)).all()


@pytest.mark.parametrize("bounds", [declared_bounds, program_bounds])
def test_bounds_of_meshes_that_were_not_reached_in_time_say_nothing(make_situation, bounds):
    of = make_situation(*CASES[0][:3], **CASES[0][3])
    context, rows = Context.of(of), model_rows(of.model, of.job)
    for batch in batches_of(of, context)[:2]:
        priced = context.pricer.price(batch)
        rules = batch_rules(context.pricer, priced)
        parts = (context.pricer, rows, batch, RowTimes.of(priced, rules), np.zeros(batch.size))
        assert (bounds(*parts, lambda: True) == 0.0).all()
        some, every = bounds(*parts, partial(next, iter([False]), True)), bounds(*parts)
        assert ((some == 0.0) | (some == every)).all()
        assert every.max() > 0.0


@pytest.mark.parametrize("engine", ["megatron", "deepspeed", "torch", "torchtitan", "fsdp2"])
@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES[:2])
def test_states_of_one_point_are_priced_alike(make_situation, engine, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job | {"engine": engine, "options": {}})
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    counts = np.ones(len(model_rows(of.model, of.job).rows))
    parts = Parts(context.pricer, families, counts, state_points(context.pricer, families.rows))
    at, state = np.nonzero(families.states_legal)
    offloads = [one.offload for one in families.options.states]
    some = np.flatnonzero([offloads[one] == offloads[state[0]] for one in state])
    some = some[np.argsort(parts.points[at[some]], kind="stable")][:400]  # those of one point together
    at, state = at[some], state[some]
    block = StateBlock.of(parts, 0, at, state, lambda: False)
    own = context.pricer.row_states(families.batch(0, at, state, np.zeros_like(at)))
    assert len(np.unique(block.place)) < at.size or engine != "megatron"
    shared = block.take(np.arange(at.size))
    for name in own.__dataclass_fields__:
        if name != "units":
            assert np.array_equal(getattr(own, name), getattr(shared, name)), name
