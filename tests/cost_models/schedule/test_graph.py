"""A graph of repeated cycles is the graph of the operation lists, whatever the number of micro-batches."""

import numpy as np
import pytest

from cost_models.schedule import ScheduleName
from cost_models.schedule.graph import Column, graph, whole_graph

ONE_F_ONE_B, INTERLEAVED = ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED


def _unrolled(parts):
    columns = []
    for part, shift in parts:
        moved = part.columns.copy()
        moved[Column.MICRO_BATCH] += shift
        columns.append(moved)
    return np.concatenate(columns, axis=1)


def _points():
    for p in (1, 2, 3, 5, 8, 16, 33):
        yield from ((ONE_F_ONE_B, p, 1, m) for m in (2 * p + 5, 3 * p + 11))
    for p in (2, 3, 4, 7, 16):
        yield from ((INTERLEAVED, p, v, p * groups) for v in (2, 3, 5, 8) for groups in (6, 9))


@pytest.mark.parametrize("point", list(_points()))
def test_cycles_unroll_to_the_whole_graph(point):
    cyclic, whole = graph(*point), whole_graph(*point)
    assert cyclic.repeats > whole.repeats == 0
    np.testing.assert_array_equal(_unrolled(cyclic.parts()), whole.head.columns)
    assert cyclic.level_count == whole.level_count
    assert cyclic.last_offset.tolist() == whole.last_offset.tolist()
    assert cyclic.reach <= cyclic.head.size + 1


def test_cycle_of_1f1b_is_one_micro_batch_and_of_interleaving_a_group():
    assert (graph(ONE_F_ONE_B, 4, 1, 50).group, graph(ONE_F_ONE_B, 4, 1, 50).cycle.size) == (1, 2 * 4)
    # 2 phases, 4 ranks, 3 chunks, a group of 4 micro-batches.
    assert (graph(INTERLEAVED, 4, 3, 80).group, graph(INTERLEAVED, 4, 3, 80).cycle.size) == (4, 2 * 4 * 3 * 4)


def test_many_micro_batches_share_the_arrays_of_few():
    assert graph(ONE_F_ONE_B, 8, 1, 100).cycle is graph(ONE_F_ONE_B, 8, 1, 90_000).cycle
