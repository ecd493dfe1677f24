"""Mesh bounds never exceed the step of any strategy that fits: random stages and recompute on random legal meshes."""

import random

import numpy as np
import pytest

from cost_models.mesh import MeshKey
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.rows import model_rows
from cost_models.specs.recompute import Recompute
from cost_models.step import step_costs
from planner.candidates import enumerate_candidates
from planner.evaluation import Context
from planner.restrictions import read_restrictions
from planner.search.bounding.memory_bounds import FullRecompute, forced
from planner.search.bounding.mesh_bounds import frequent_blocks, mesh_sums, step_bounds
from planner.search.windows import stage_window, takes_every_cut

CASES = [
    ("llama-3.1-70b", "dgx-h100", 64, {"seq_len": 8192, "global_batch": 512}),
    ("llama-3.1-8b", "dgx-a100-40", 16, {"seq_len": 8192, "global_batch": 48, "engine": "torch"}),
    ("mixtral-8x7b", "dgx-h100", 32, {"seq_len": 4096, "global_batch": 96}),
    ("mixtral-8x7b", "dgx-h100", 32, {"seq_len": 4096, "global_batch": 128, "engine": "torchtitan@0.3"}),
    (
        "mixtral-8x7b",
        "dgx-h100",
        32,
        {"seq_len": 4096, "global_batch": 128, "options": {"engine.ep_overlap": True}},
    ),
    ("deepseek-v3", "dgx-h800", 512, {"seq_len": 4096, "global_batch": 1920}),
    ("nemotron-h-8b", "dgx-h100", 16, {"seq_len": 8192, "global_batch": 64}),
    ("t5-3b", "dgx-a100", 8, {"seq_len": 512, "global_batch": 64, "engine": "torch"}),
    ("resnet-50", "dgx-a100", 8, {"global_batch": 256, "engine": "torch"}),
]


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), CASES)
def test_no_fitting_strategy_beats_its_mesh_bound(make_situation, model, cluster, devices, job):
    of = make_situation(model, cluster, devices, **job)
    context = Context.of(of)
    rng = random.Random(7)
    fitting = 0
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    batches = [batch for batch in families.everything() if batch.size]
    for batch in rng.sample(batches, min(14, len(batches))):
        chosen = np.asarray(sorted(rng.sample(range(batch.size), min(14, batch.size))))
        few = batch.take(chosen)
        sums = mesh_sums(context.pricer, few)
        may = not few.key.scopes
        full = FullRecompute(may, of.engine.space(of.model, of.job).uniform_full)
        needed = forced(few, sums, of.job.global_batch, frequent_blocks(model_rows(of.model, of.job)), full)
        bounds = step_bounds(context.pricer, few, sums, needed)
        priced = context.pricer.price(few)
        rules = batch_rules(context.pricer, priced)
        for row in range(few.size):
            mesh = mesh_costs(context.pricer, priced, rules, row)
            for _ in range(6):
                stages = _cut(rng, mesh)
                one = mesh.uniform_full or not takes_every_cut(mesh.schedule, mesh.vpp, mesh.table.num_blocks)
                full = _full(rng, stages, one) if may else (0,) * len(stages)
                costs = step_costs(mesh, stages, full)
                if costs.fits:
                    fitting += 1
                    assert bounds[row] <= costs.step_s * (1 + 1e-9), (few.row(row), stages, full)
    assert fitting > 20


def test_bounds_of_meshes_that_differ_in_schedule_only_share_their_sums(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64)
    context = Context.of(of)
    (batch, *_) = enumerate_candidates(of.engine, context.facts, read_restrictions({"pp": 2}, ())).batches
    assert batch.key == MeshKey()
    sums = mesh_sums(context.pricer, batch)
    alike = (batch.tp == 2) & (batch.cp == 1) & (batch.mbs == 1) & (batch.sp == 1)
    assert len(set(batch.vpp[alike].tolist())) > 1
    assert np.ptp(sums.total_s[alike]) == 0.0


def _cut(rng, mesh):
    """A random cut of the declared space: any, or within the window of the declared ones."""
    blocks, stages = mesh.table.num_blocks, mesh.pp * mesh.vpp
    every_cut = takes_every_cut(mesh.schedule, mesh.vpp, blocks)
    least, most = stage_window(blocks, mesh.pp * mesh.vpp, every_cut=every_cut)
    marks = [round(blocks * i / stages) for i in range(1, stages)]
    if rng.random() < 0.5 and every_cut:
        marks = sorted(rng.sample(range(1, blocks), stages - 1))
    sizes = [b - a for a, b in zip((0, *marks), (*marks, blocks), strict=True)]
    for _ in range(rng.choice((0, 2, 8))):
        giver, taker = rng.randrange(stages), rng.randrange(stages)
        if giver != taker and sizes[giver] > least[giver] and sizes[taker] < most[taker]:
            sizes[giver], sizes[taker] = sizes[giver] - 1, sizes[taker] + 1
    return tuple(sizes)


def _full(rng, stages, uniform):
    if uniform:
        return Recompute((), rng.randint(0, max(stages))).full_layers(stages)
    return tuple(rng.randint(0, n) for n in stages)
