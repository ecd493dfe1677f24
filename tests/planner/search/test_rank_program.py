"""The min-max program over (rank, block) on hand-worked pipelines."""

import numpy as np
import pytest

from cost_models.chunk import MeshCosts, StepRules
from cost_models.schedule import ScheduleName
from planner.search.band_program import best_cut
from planner.search.rank_program import solve_rank_program
from tests.planner.search.builders import table_of


def mesh_of(forward_s, backward_s, pp, micro_batches, rules=None) -> MeshCosts:
    """Blocks with these seconds, nothing else."""
    kinds = np.zeros((12, len(forward_s)))
    kinds[0], kinds[1] = forward_s, backward_s
    table = table_of(np.arange(len(forward_s)), kinds, np.zeros((12, 2)))
    return MeshCosts(ScheduleName.ONE_F_ONE_B, pp, 1, micro_batches, table, rules or StepRules())


def test_even_pipeline_is_bounded_by_its_step():
    # 4 equal blocks of 1 + 2 s on 4 ranks, 8 micro-batches: (8 + 4 - 1) * 3 = 33 s.
    program = solve_rank_program(mesh_of([1.0] * 4, [2.0] * 4, 4, 8), None)
    assert program.bound_s == pytest.approx(33.0)
    assert best_cut(program.through_s, program.table.band, 4) == (1, 1, 1, 1)


def test_uneven_pipeline_where_the_closed_form_is_no_bound():
    # Two blocks of F = B = 10 and 1 on two ranks, m = 4: the schedule takes 80 s (the closed form says 82).
    program = solve_rank_program(mesh_of([10.0, 1.0], [10.0, 1.0], 2, 4), None)
    assert program.bound_s <= 80.0
    assert program.bound_s >= 4 * 20.0


def test_the_longest_tail_is_added():
    mesh = mesh_of([1.0] * 2, [1.0] * 2, 2, 2)
    mesh.table.optimizer_s[1:3] = 5.0
    # (2 + 2 - 1) * 2 = 6 s, and 5 s of optimizer on each rank.
    assert solve_rank_program(mesh, None).bound_s == pytest.approx(11.0)


def test_sends_lengthen_every_round_trip():
    # m = 1: one micro-batch down and up two ranks, 2 * (1 + 1) s and two sends of 0.5 s.
    program = solve_rank_program(mesh_of([1.0] * 2, [1.0] * 2, 2, 1, StepRules(send_s=0.5)), None)
    assert program.bound_s == pytest.approx(5.0)


def test_segments_that_cannot_beat_a_target_are_those_above_it():
    program = solve_rank_program(mesh_of([1.0] * 6, [2.0] * 6, 2, 16), None)
    # Balanced: 3 + 3 blocks, (16 + 1) * 9 = 153 s; any other cut puts 4 blocks of 12 s on a rank: 16 * 12 = 192 s.
    assert program.bound_s == pytest.approx(153.0)
    assert (program.through_s[0] < 192.0).sum() == 1
