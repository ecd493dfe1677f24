"""Schedules that split their backward: bounds against the simulator, and declared cuts against brute force."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.chunk import MeshCosts
from cost_models.memory import rank_memory
from cost_models.schedule import ScheduleName
from cost_models.step import step_costs
from planner.search.baselines import partitions
from planner.search.bounds import inner_lower_bound
from planner.search.chunk_cuts import best_declared
from planner.search.problem import InnerStatus
from planner.search.solve import solve_inner
from planner.search.windows import declared_cuts
from tests.planner.search.builders import Shape, random_mesh, table_of, with_limit

SPLIT = (ScheduleName.ZB_H1, ScheduleName.ZB_V, ScheduleName.DUALPIPE_V)


def split_shape(rng: np.random.Generator) -> Shape:
    """A small legal point with at most 9 blocks."""
    schedule = SPLIT[int(rng.integers(0, len(SPLIT)))]
    pp, vpp = int(rng.integers(2, 4)), 2 if schedule.has_two_chunks else 1
    least = 2 * pp if schedule is ScheduleName.DUALPIPE_V else 1
    return Shape(schedule, pp, vpp, int(rng.integers(least, least + 6)), int(rng.integers(pp * vpp, 10)))


def split_mesh(rng: np.random.Generator) -> MeshCosts:
    """A random mesh of such a schedule, whose weight gradients are any share of the backward."""
    shape = split_shape(rng)
    kinds, edges = rng.uniform(0.2, 3.0, (12, 2)), rng.uniform(0.0, 3.0, (12, 2))
    for rows in (kinds, edges):
        rows[2] = rows[0] * rng.uniform(0.5, 1.0)
        rows[8] = rows[7] * rng.uniform(0.05, 0.3)
        rows[10] += rows[7]
    table = table_of(rng.integers(0, 2, shape.num_blocks), kinds, edges)
    weight_s = table.backward_parts_s.sum(0) * rng.uniform(0.0, 1.0, table.weight_s.shape)
    halfway = table.saved_bytes * rng.uniform(0.3, 1.5)
    table = replace(table, weight_s=weight_s, halfway_bytes=halfway, full_halfway_bytes=halfway)
    return with_limit(
        MeshCosts(
            shape.schedule,
            shape.pp,
            shape.vpp,
            shape.num_micro_batches,
            table,
            random_mesh(rng).rules,
            uniform_full=bool(rng.integers(0, 2)),
        ),
        float(rng.choice([0.8, 1.0, 1.3, np.inf])),
    )


def random_choice(rng: np.random.Generator, mesh: MeshCosts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    count = mesh.pp * mesh.vpp
    cuts = list(partitions(mesh.table.num_blocks, count))
    stages = cuts[int(rng.integers(0, len(cuts)))]
    return stages, tuple(int(rng.integers(0, n + 1)) for n in stages)


def test_the_bound_is_below_every_choice():
    """1,500 random uneven choices; no path of 1F1B is a bound here, the average rank is."""
    rng = np.random.default_rng(11)
    for _ in range(1500):
        mesh = split_mesh(rng)
        stages, full = random_choice(rng, mesh)
        found = step_costs(mesh, stages, full)
        if found.fits:
            assert inner_lower_bound(mesh) <= found.step_s * (1 + 1e-9)


def test_declared_cuts_are_priced_exactly():
    """The best of the declared cuts under every K, against one evaluation of each."""
    rng = np.random.default_rng(5)
    reached = 0
    for _ in range(60):
        mesh = split_mesh(rng)
        best = np.inf
        for cut in declared_cuts(mesh.table.num_blocks, mesh.pp * mesh.vpp).tolist():
            for number in range(max(cut) + 1):
                found = step_costs(mesh, tuple(cut), tuple(min(number, n) for n in cut))
                best = min(best, found.step_s if found.fits else np.inf)
        bound_s, solution = best_declared(mesh, np.inf)
        assert bound_s == pytest.approx(best, rel=1e-9)
        reached += solution is not None
    assert reached > 20


def test_memory_is_the_same_by_vectors_and_by_cause():
    """`step_costs` and `rank_memory` count one peak."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        mesh = split_mesh(rng)
        stages, full = random_choice(rng, mesh)
        peaks = step_costs(mesh, stages, full).peak_bytes
        for rank in range(mesh.pp):
            assert rank_memory(mesh, stages, full, rank).peak_bytes == pytest.approx(peaks[rank], rel=1e-9)


def test_solving_one_mesh_says_what_is_known():
    """A solution of the declared cuts, never below the bound, and not called optimal where the bound is below."""
    rng = np.random.default_rng(8)
    for _ in range(30):
        mesh = split_mesh(rng)
        found = solve_inner(mesh, incumbent_s=np.inf, gap=1e-3, max_seconds=10.0, seed=0)
        if found.solution is None:
            continue
        assert found.lower_bound_s <= found.solution.step_s * (1 + 1e-9)
        reached = found.lower_bound_s >= (1 - 1e-3) * found.solution.step_s
        assert (found.status is InnerStatus.OPTIMAL) <= reached
