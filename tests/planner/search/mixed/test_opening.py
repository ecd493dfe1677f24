"""One mesh over several pools: the exact choice against brute force, bounds against every choice."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.chunk import MeshCosts
from cost_models.mixed_costs import MixedCosts
from cost_models.schedule import ScheduleName
from cost_models.step import step_costs
from planner.search import solve_exhaustively
from planner.search.bounding.path_pool import PathPool
from planner.search.mixed.opening import open_mixed
from planner.search.mixed.rank_program import narrowed, solve_mixed_program
from planner.search.problem import pipeline_of, price_many, step_of
from tests.planner.search.builders import random_mesh
from tests.planner.search.mixed.test_brute_force import declared

GAP = 1e-6
SEEDS = 80


def scaled(mesh: MeshCosts, rng: np.random.Generator) -> MeshCosts:
    """The same rows on faster or slower devices with more or less memory."""
    speed, room = rng.choice([0.3, 1.0, 2.5]), rng.choice([0.7, 1.0, 1.6])
    names = ("forward_parts_s", "backward_parts_s", "full_parts_s", "sync_s", "optimizer_s")
    table = replace(mesh.table, **{name: getattr(mesh.table, name) * speed for name in names})
    rules = mesh.rules
    shown = float(rng.choice([0.0, 0.2]))
    rules = replace(
        rules,
        allocated_limit_bytes=rules.allocated_limit_bytes * room,
        chunk_forward_s=shown,
        chunk_backward_s=shown,
        sync_overlap=float(rng.choice([0.0, 0.6])),
        sync_exposed_min=float(rng.choice([0.1, 1.0])),
        gather_exposed=float(rng.choice([0.2, 1.0])),
    )
    return replace(mesh, table=table, rules=rules)


def random_mixed(seed: int, *, chunked: bool) -> MixedCosts:
    """A small pipeline over two or three pools, links of its own between all ranks."""
    for attempt in range(100):
        rng = np.random.default_rng((seed, attempt))
        mesh = random_mesh(rng)
        if mesh.pp > 1 and (mesh.vpp > 1) == chunked and not mesh.uniform_chunks:
            break
    pools = int(rng.integers(2, min(mesh.pp, 3) + 1))
    marks = np.sort(rng.choice(np.arange(1, mesh.pp), pools - 1, replace=False))
    pool_of_rank = tuple(int(np.searchsorted(marks, rank, side="right")) for rank in range(mesh.pp))
    parts = tuple(scaled(mesh, rng) for _ in range(pools))
    links = tuple(float(x) for x in rng.choice([0.0, 0.1, 2.0], mesh.pp))
    shared = {
        name: getattr(mesh, name) for name in ("schedule", "pp", "vpp", "num_micro_batches", "uniform_full")
    }
    first = parts[pool_of_rank[0]]
    own = {
        "parts": parts,
        "part_of_rank": pool_of_rank,
        "pool_of_rank": pool_of_rank,
        "seconds_of_link": links,
    }
    return MixedCosts(table=first.table, rules=first.rules, **shared, **own)


def test_one_chunk_a_rank_equals_brute_force():
    fitting = 0
    for seed in range(SEEDS):
        mesh = random_mixed(seed, chunked=False)
        best = solve_exhaustively(mesh)
        opened = open_mixed(mesh, np.inf, GAP, lambda: False, PathPool())
        if best is None:
            assert opened.solution is None, seed
            continue
        fitting += 1
        assert opened.bound_s <= best.step_s * (1 + 1e-9), seed
        if opened.solution is None:
            assert not opened.is_exact, seed
            continue
        costs = step_costs(mesh, opened.solution.stages, opened.solution.full_layers)
        assert costs.fits
        assert costs.step_s == pytest.approx(opened.solution.step_s, rel=1e-12)
        if opened.is_exact:
            assert opened.solution.step_s == pytest.approx(best.step_s, rel=2 * GAP), seed
            assert opened.bound_s >= (1 - 2 * GAP) * best.step_s, seed
    assert fitting > SEEDS // 2


def test_a_step_to_beat_leaves_true_bounds():
    for seed in range(SEEDS):
        mesh = random_mixed(1000 + seed, chunked=False)
        best = solve_exhaustively(mesh)
        if best is None:
            continue
        for share in (0.9, 1.05):
            opened = open_mixed(mesh, share * best.step_s, 1e-3, lambda: False, PathPool())
            found = [] if opened.solution is None else [opened.solution.step_s]
            assert min([opened.bound_s, *found]) <= max(best.step_s, share * best.step_s) * (1 + 1e-9), seed
            assert opened.bound_s <= best.step_s * (1 + 1e-9) or opened.bound_s >= share * best.step_s * (
                1 - 1e-3
            )
            if opened.is_exact and share > 1.0:
                assert opened.solution is not None, seed
                assert opened.solution.step_s <= best.step_s / (1 - 1e-3) * (1 + 1e-9), seed


def test_programs_bound_every_choice_and_stay_true_when_narrowed():
    for seed in range(40):
        mesh = random_mixed(2000 + seed, chunked=False)
        full = 0 if mesh.uniform_full else None
        program = solve_mixed_program(mesh, full)
        best = solve_exhaustively(replace(mesh, may_recompute=False) if full == 0 else mesh)
        if best is None or (full == 0 and max(best.full_layers) > 0):
            continue
        assert step_of(mesh, program.bound_s) <= best.step_s * (1 + 1e-9), seed
        target_s = pipeline_of(mesh, best.step_s) * (1 + 1e-6)
        assert step_of(mesh, narrowed(mesh, program, target_s).bound_s) <= best.step_s * (1 + 1e-5), seed


def test_several_chunks_a_rank_equal_all_declared_cuts():
    fitting = 0
    for seed in range(24):
        mesh = random_mixed(3000 + seed, chunked=True)
        assert mesh.schedule is ScheduleName.INTERLEAVED
        count = mesh.pp * mesh.vpp
        stages = [
            [g for g in range(count) if mesh.pool_of_rank[g % mesh.pp] == pool]
            for pool in range(max(mesh.pool_of_rank) + 1)
        ]
        cuts = np.asarray(sorted(set(declared(mesh.table.num_blocks, stages)))).reshape(-1, count)
        opened = open_mixed(mesh, np.inf, GAP, lambda: False, PathPool())
        steps = []
        for number in range(int(cuts.max(initial=0)) + 1):
            prices = price_many(mesh, cuts, np.minimum(number, cuts))
            steps += prices.step_s[prices.fits].tolist()
        if not steps:
            assert opened.solution is None, seed
            continue
        fitting += 1
        assert opened.solution is not None, seed
        assert opened.solution.step_s == pytest.approx(min(steps), rel=1e-12), seed
        assert opened.bound_s == pytest.approx(min(steps), rel=1e-12), seed
    assert fitting > 8
