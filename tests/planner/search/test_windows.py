"""Declared cuts: which schedules take them, what they are, and bounds that hold when time runs out."""

import numpy as np
import pytest

from cost_models.schedule import ScheduleName
from planner.search.chunk_cuts import best_declared
from planner.search.windows import MOST_BLOCKS, declared_cuts, takes_every_cut
from tests.planner.search.builders import random_mesh


@pytest.mark.parametrize(
    ("schedule", "vpp", "blocks", "every"),
    [
        ("1f1b", 1, 80, True),
        ("gpipe", 1, MOST_BLOCKS, True),
        ("1f1b", 1, MOST_BLOCKS + 1, False),  # a table of all its segments would not fit in memory
        ("interleaved", 2, 80, False),
        ("zb-h1", 1, 80, False),
        ("zb-v", 2, 80, False),
    ],
)
def test_who_takes_every_cut(schedule, vpp, blocks, every):
    assert takes_every_cut(ScheduleName(schedule), vpp, blocks) is every


def test_declared_cuts_of_five_blocks_on_two_stages():
    """Even are 2+3 and 3+2; 3+4 of 7 with two fewer on the first is 1+4, with two fewer on the last of 4+3 is 4+1."""
    assert declared_cuts(5, 2).tolist() == [[1, 4], [2, 3], [3, 2], [4, 1]]
    cuts = declared_cuts(11, 4)
    assert (cuts.sum(axis=1) == 11).all()
    assert cuts.min() >= 1
    assert len(np.unique(cuts, axis=0)) == len(cuts)


def test_too_few_blocks_leave_no_cut():
    assert declared_cuts(3, 4).shape == (0, 4)


def test_a_late_look_still_bounds_every_declared_cut():
    """Once it is late only the first K is priced: the bound is no higher than with all of them."""
    rng = np.random.default_rng(4)
    looked = 0
    while looked < 40:
        mesh = random_mesh(rng)
        if mesh.vpp == 1:
            continue
        looked += 1
        bound_s, _ = best_declared(mesh, np.inf)
        late_s, _ = best_declared(mesh, np.inf, lambda: True)
        assert late_s <= bound_s * (1 + 1e-9)
