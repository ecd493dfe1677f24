"""Overlap and stragglers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.overlap import expected_maximum_factor, exposed

seconds = st.floats(0.0, 1e3)
shares = st.floats(0.0, 1.0)


def test_by_hand() -> None:
    # 10 s beside 8 s of which 0.75 is usable: 6 hidden, 4 visible, and 0.2 x 6 of slower computation
    assert float(exposed(10.0, 8.0, efficiency=0.75, interference=0.2)) == pytest.approx(5.2)
    # all of 3 s fits: only the interference remains
    assert float(exposed(3.0, 8.0, efficiency=0.75, interference=0.2)) == pytest.approx(0.6)
    assert float(exposed(3.0, 0.0, efficiency=1.0, interference=0.0)) == 3.0


@given(seconds, seconds, seconds, shares, shares)
def test_bounds_and_monotonicity(
    comm: float, more: float, window: float, efficiency: float, interference: float
) -> None:
    knobs = {"efficiency": efficiency, "interference": interference}
    added = float(exposed(comm, window, **knobs))
    assert interference * comm - 1e-9 <= added <= comm + 1e-9
    assert float(exposed(comm + more, window, **knobs)) >= added - 1e-9
    assert float(exposed(comm, window + more, **knobs)) <= added + 1e-9


def test_arrays() -> None:
    found = exposed(np.array([1.0, 2.0]), 1.0, efficiency=1.0, interference=np.array([0.0, 0.5]))
    assert found == pytest.approx(np.array([0.0, 1.5]))


@pytest.mark.parametrize(
    # the expected largest of N standard normals: 1/sqrt(pi), 3/(2 sqrt(pi)), and tabulated values
    ("num_ranks", "exact", "within"),
    [
        (2, 0.56419, 0.05),
        (3, 0.84628, 0.03),
        (10, 1.53875, 0.01),
        (100, 2.50759, 0.01),
        (1000, 3.24144, 0.01),
    ],
)
def test_expected_maximum(num_ranks: int, exact: float, within: float) -> None:
    assert float(expected_maximum_factor(num_ranks, 0.02)) - 1.0 == pytest.approx(0.02 * exact, rel=within)


def test_one_rank_or_no_noise_waits_for_nobody() -> None:
    assert float(expected_maximum_factor(1, 0.5)) == 1.0
    assert float(expected_maximum_factor(4096, 0.0)) == 1.0


def test_more_ranks_wait_longer() -> None:
    factors = expected_maximum_factor(np.arange(1.0, 5000.0), 0.01)
    assert np.all(np.diff(factors) > 0)
