"""The exact inner problem against brute force, the simulator, its own neighbours and itself."""

import subprocess
import sys

import numpy as np
import pytest

from cost_models.chunk import MeshCosts
from cost_models.schedule import ScheduleName
from cost_models.step import step_costs
from planner.search import (
    InnerSolution,
    InnerStatus,
    even_stages,
    greedy,
    inner_lower_bound,
    solve_exhaustively,
    solve_inner,
)
from planner.search.bounding.path_pool import PathPool
from tests.planner.search.builders import Shape, large_mesh, random_mesh

GAP = 1e-6
SOLVED = 200
BOUNDED = 1500


def solve(mesh: MeshCosts, gap: float = GAP, incumbent_s: float = np.inf):
    return solve_inner(mesh, incumbent_s=incumbent_s, gap=gap, max_seconds=60.0, seed=0)


@pytest.fixture(scope="module")
def solved() -> list[tuple[MeshCosts, InnerSolution | None]]:
    meshes = [random_mesh(np.random.default_rng(seed)) for seed in range(SOLVED)]
    return [(mesh, solve_exhaustively(mesh)) for mesh in meshes]


def test_exhaustive_answer_is_what_step_costs_says(solved):
    for mesh, best in solved:
        if best is not None:
            costs = step_costs(mesh, best.stages, best.full_layers)
            assert costs.fits
            assert costs.step_s == pytest.approx(best.step_s, rel=1e-12)


def test_solver_equals_brute_force_on_random_instances(solved):
    for number, (mesh, best) in enumerate(solved):
        result = solve(mesh)
        if best is None:
            assert result.status is InnerStatus.INFEASIBLE, number
            assert result.solution is None
            continue
        assert result.status is InnerStatus.OPTIMAL, number
        assert result.solution is not None
        assert result.solution.step_s == pytest.approx(best.step_s, rel=2 * GAP), number
        assert result.lower_bound_s <= best.step_s * (1 + 1e-9), number
        assert result.lower_bound_s >= (1 - 2 * GAP) * best.step_s, number


def test_bound_is_at_most_the_optimum_and_infinite_only_if_nothing_fits():
    unbounded = 0
    for seed in range(BOUNDED):
        mesh = random_mesh(np.random.default_rng(10_000 + seed))
        best, bound_s = solve_exhaustively(mesh), inner_lower_bound(mesh)
        if best is None:
            unbounded += np.isinf(bound_s)
        else:
            assert bound_s <= best.step_s * (1 + 1e-9), seed
    assert unbounded > 0


def test_greedy_fits_and_is_never_better_than_the_optimum(solved):
    for mesh, best in solved:
        found = greedy(mesh, PathPool())
        if found is None:
            continue
        assert best is not None
        costs = step_costs(mesh, found.stages, found.full_layers)
        assert costs.fits
        assert costs.step_s == pytest.approx(found.step_s, rel=1e-12)
        assert found.step_s >= best.step_s * (1 - 1e-12)


def neighbours(mesh: MeshCosts, solution: InnerSolution):
    """Every choice one knob away: a block over one boundary, or K up or down by one (everywhere, if uniform)."""
    stages, full = solution.stages, solution.full_layers
    if not mesh.uniform_chunks:
        most = max(full)
        for left in range(len(stages) - 1):
            for moved in (1, -1):
                cut = list(stages)
                cut[left] -= moved
                cut[left + 1] += moved
                if min(cut) >= 1:
                    kept = [most] * len(cut) if mesh.uniform_full else full
                    yield tuple(cut), tuple(min(k, blocks) for k, blocks in zip(kept, cut, strict=True))
    for by in (1, -1):
        if mesh.uniform_full:
            most = max(full) + by
            if 0 <= most <= max(stages):
                yield stages, tuple(min(most, blocks) for blocks in stages)
            continue
        for at, blocks in enumerate(stages):
            if 0 <= full[at] + by <= blocks:
                yield stages, tuple(k + by * (stage == at) for stage, k in enumerate(full))


def test_no_neighbour_of_a_large_solution_is_better():
    gap = 1e-3
    for mesh in (
        large_mesh(Shape(ScheduleName.ONE_F_ONE_B, 8, 1, 64, 61), dense_first=3, memory_share=0.85),
        large_mesh(Shape(ScheduleName.INTERLEAVED, 4, 2, 32, 40), memory_share=0.9),
    ):
        result = solve(mesh, gap)
        assert result.status is InnerStatus.OPTIMAL
        for stages, full_layers in neighbours(mesh, result.solution):
            costs = step_costs(mesh, stages, full_layers)
            assert not costs.fits or costs.step_s >= result.lower_bound_s


def test_an_incumbent_that_cannot_be_beaten_cuts_the_mesh():
    mesh = large_mesh(Shape(ScheduleName.ONE_F_ONE_B, 16, 1, 480, 61), dense_first=3)
    incumbent_s = 0.9 * greedy(mesh, PathPool()).step_s
    result = solve(mesh, 1e-3, incumbent_s=incumbent_s)
    assert result.status is InnerStatus.CUT
    assert result.lower_bound_s >= (1 - 1e-3) * incumbent_s
    assert result.rounds == 0


def test_no_time_leaves_a_true_bound_and_says_stopped():
    mesh = large_mesh(Shape(ScheduleName.INTERLEAVED, 8, 2, 64, 61), dense_first=3)
    result = solve_inner(mesh, incumbent_s=np.inf, gap=1e-6, max_seconds=0.0, seed=0)
    assert result.status is InnerStatus.STOPPED
    assert result.solution is not None
    assert result.lower_bound_s < result.solution.step_s


def test_equal_arguments_give_equal_answers():
    for shape in (
        Shape(ScheduleName.ONE_F_ONE_B, 16, 1, 240, 61),
        Shape(ScheduleName.INTERLEAVED, 4, 2, 16, 61),
    ):
        mesh = large_mesh(shape, dense_first=3)
        first, second = solve(mesh, 1e-3), solve(mesh, 1e-3)
        assert first.solution == second.solution
        assert (first.lower_bound_s, first.rounds) == (second.lower_bound_s, second.rounds)


def test_fewer_blocks_than_virtual_stages_is_infeasible():
    mesh = large_mesh(Shape(ScheduleName.ONE_F_ONE_B, 8, 1, 8, 7))
    assert even_stages(mesh) is None
    assert np.isinf(inner_lower_bound(mesh))
    assert solve(mesh).status is InnerStatus.INFEASIBLE


def test_even_split_puts_the_longer_stages_inside():
    # 10 blocks on 4 ranks: 2 each, the 2 left over go to the inner ranks 1 and 2.
    assert even_stages(large_mesh(Shape(ScheduleName.ONE_F_ONE_B, 4, 1, 8, 10))) == (2, 3, 3, 2)


def test_import_bounds_and_greedy_load_no_solver():
    code = (
        "import sys; import planner.search; "
        "assert not any(name.split('.')[0] == 'ortools' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
