"""Bounds of meshes over several pools never exceed the step of a strategy that fits: random cuts and recompute."""

import random
from dataclasses import replace

import numpy as np
import pytest

from cost_models.profiles import cluster_from_spec
from cost_models.specs.job import JobRequest
from cost_models.specs.recompute import Recompute
from cost_models.step import step_costs
from planner.evaluation import Context
from planner.make_plan import _search_parts
from planner.request import CatalogModel, SearchRequest
from planner.restrictions import read_restrictions
from planner.search.mixed.batches import Batches
from planner.search.mixed.search import MixedSearch
from planner.search.mixed.space import placements_asked
from planner.situation import Situation, resolve_model, situate
from tests.planner.search.mixed.test_brute_force import declared

NODE = {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6}
FABRIC = {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6}
WAN = {"name": "ethernet wan", "bytes_per_s": 5e8, "latency_s": 0.03}
CASES = [
    ("llama-3.1-8b", (("a100-sxm-40gb", 2), ("h100-sxm-80gb", 2)), FABRIC, "megatron"),
    ("mixtral-8x7b", (("a100-sxm-80gb", 2), ("h200-sxm", 4)), WAN, "megatron"),
]
MORE = [
    ("llama-3.1-8b", (("l4", 2), ("a100-sxm-40gb", 1), ("h100-sxm-80gb", 1)), FABRIC, "torch"),
    ("deepseek-v2-lite", (("a100-sxm-40gb", 1), ("h100-sxm-80gb", 2)), WAN, "megatron"),
]


def situation(model: str, groups, outer: dict, engine: str) -> Situation:
    raw = {
        "name": "several",
        "groups": [{"device": device, "nodes": nodes, "devices_per_node": 8} for device, nodes in groups],
        "tiers": [NODE, outer],
    }
    job = JobRequest(seq_len=4096, global_batch=32, engine=engine)
    return situate(resolve_model(CatalogModel(name=model)), cluster_from_spec(raw), job)


def random_cut(rng: random.Random, mesh) -> tuple[int, ...]:
    """A cut of the declared space, near to even or far from it."""
    blocks, count = mesh.table.num_blocks, mesh.pp * mesh.vpp
    if mesh.vpp == 1:
        marks = sorted(rng.sample(range(1, blocks), count - 1))
        return tuple(b - a for a, b in zip((0, *marks), (*marks, blocks), strict=True))
    pools = [
        [g for g in range(count) if mesh.pool_of_rank[g % mesh.pp] == pool] for pool in set(mesh.pool_of_rank)
    ]
    shares = [len(stages) for stages in pools]
    for _ in range(rng.randrange(blocks - count + 1) if rng.random() < 0.5 else blocks - count):
        shares[rng.randrange(len(shares))] += 1
    shares[-1] += blocks - sum(shares)
    cut = [0] * count
    for share, stages in zip(shares, pools, strict=True):
        base, extra = divmod(share, len(stages))
        for place, stage in enumerate(stages):
            cut[stage] = base + (place < extra)
    return tuple(cut)


@pytest.mark.parametrize(
    ("model", "groups", "outer", "engine"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.matrix) for case in MORE)],
)
def test_no_fitting_strategy_beats_the_bound_of_its_mesh(model, groups, outer, engine):
    of = situation(model, groups, outer, engine)
    context, rng = Context.of(of), random.Random(11)
    restrictions = read_restrictions({"zero": 1, "mbs": "1,2"}, ())
    parts = _search_parts(context, restrictions, SearchRequest(), np.inf)
    search = MixedSearch(context.pools, restrictions, *parts, lambda progress: None)
    batches, plain_s, fitting = Batches(context.pools, parts[0]), {}, 0
    for place in placements_asked(context.pools, restrictions):
        for meshes in search._listed(place) if len(place.pools) > 1 else ():
            quick, above_s = batches.below(meshes, np.inf)
            assert quick is not None and not above_s.size
            assert batches.below(replace(meshes, key=replace(meshes.key, scopes=("none",))), 0.0)[0] is None
            without_s = plain_s.setdefault(replace(meshes.key, scopes=()), quick.bound_s)
            assert (quick.bound_s >= without_s * (1 - 1e-12)).all()
            batch = quick.sharpened(of.job.global_batch, np.inf, lambda: False)
            assert (batch.bound_s >= quick.bound_s).all()
            chosen = np.asarray(sorted(rng.sample(range(batch.meshes.size), min(8, batch.meshes.size))))
            few = batch.meshes.take(chosen)
            costs_of = context.costs_of(few)
            may = parts[0].free_with(few.key.scopes)
            for row in range(few.size):
                mesh = costs_of(row)
                for _ in range(5):
                    stages = random_cut(rng, mesh)
                    most = max(stages) if may else 0
                    full = rng.choice((0, rng.randint(0, most), most))
                    costs = step_costs(mesh, stages, Recompute((), full).full_layers(stages))
                    if costs.fits:
                        fitting += 1
                        bound_s = batch.bound_s[chosen[row]]
                        assert bound_s <= costs.step_s * (1 + 1e-9), (place.text, few.row(row), stages, full)
    assert fitting > 20


def test_declared_cuts_hold_every_division_of_the_blocks():
    # Six blocks on two pools of two stages each: 2+4, 3+3 and 4+2 blocks at least, with up to two fewer on the edges.
    cuts = set(declared(6, [[0, 1], [2, 3]]))
    assert {(1, 1, 2, 2), (2, 1, 1, 2), (1, 2, 2, 1), (2, 2, 1, 1)} <= cuts
