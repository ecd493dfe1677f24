"""Failures: the published optimum intervals, the exact optimum, and what is left of the time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.objectives.goodput import (
    daly_interval_s,
    expected_goodput,
    optimal_interval_s,
    useful_share,
    young_interval_s,
)
from planner.request import RunRequest

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@pytest.mark.parametrize(
    ("mtbf_s", "published_min"),
    # Daly, FGCS 22 (2006) 303-312, figures 3 to 5: delta = 5 min, R = 10 min; tau_opt = 117, 57 and 9.1 min.
    # By hand for M = 24 h: sqrt(2 x 5 x 1440) = 120; (1 + sqrt(5/2880)/3 + 5/2880/9) = 1.01408; 121.69 - 5 = 116.7.
    [(24 * HOUR, 117.0), (6 * HOUR, 57.0), (15 * MINUTE, 9.1)],
)
def test_daly_gives_the_intervals_of_his_paper(mtbf_s, published_min):
    found = daly_interval_s(5 * MINUTE, mtbf_s) / MINUTE
    assert found == pytest.approx(published_min, abs=0.5 if published_min > 10 else 0.05)
    assert optimal_interval_s(5 * MINUTE, mtbf_s) / MINUTE == pytest.approx(found, rel=0.01)


def test_young_is_the_square_root():
    # sqrt(2 x 30 s x 6,000 s) = 600 s
    assert young_interval_s(30.0, 6000.0) == pytest.approx(600.0)
    assert daly_interval_s(500.0, 200.0) == 200.0  # delta beyond 2 M: one interval a failure


@given(st.floats(1e-3, 1e5), st.floats(1.0, 1e7), st.floats(0.01, 100.0))
def test_no_interval_beats_the_optimum(save_s, mtbf_s, factor):
    best = optimal_interval_s(save_s, mtbf_s)
    assert 0.0 < best <= mtbf_s
    share = useful_share(best, save_s, 0.0, mtbf_s)
    other = useful_share(best * factor, save_s, 0.0, mtbf_s)
    assert other <= share * (1.0 + 1e-6)


@given(st.floats(0.0, 1e4), st.floats(0.0, 1e5), st.floats(1.0, 1e8))
def test_a_share_is_a_share(save_s, restart_s, mtbf_s):
    interval_s = optimal_interval_s(save_s, mtbf_s)
    share = useful_share(interval_s, save_s, restart_s, mtbf_s)
    assert 0.0 <= share <= 1.0
    assert useful_share(interval_s, save_s, restart_s, 2.0 * mtbf_s) >= share


def test_the_formula_by_hand():
    # tau = delta = 0.5 M, R = M: 0.5 / (e (e - 1)) = 0.5 / 4.6708 = 0.10705
    assert useful_share(0.5, 0.5, 1.0, 1.0) == pytest.approx(0.5 / (math.e * (math.e - 1.0)))
    # nothing to save: only restarts cost, e^-1
    assert useful_share(0.0, 0.0, 1.0, 1.0) == pytest.approx(math.exp(-1.0))
    assert useful_share(1e6, 1.0, 0.0, 1.0) == 0.0


def test_the_default_is_the_published_rate():
    # Llama 3 (arXiv:2407.21783): 419 unexpected interruptions in 54 days on 16,384 devices, one in 3.1 hours.
    assert RunRequest().mtbf_device_hours == pytest.approx(16_384 * 54 * 24 / 419, abs=1.0)
    # 405e9 parameters x 14 bytes; the paper says more than 90 % effective training time.
    found = expected_goodput(RunRequest(), 16_384, 405e9 * 14)
    assert found.mtbf_s == pytest.approx(3.093 * HOUR, rel=1e-3)
    assert found.checkpoint_s == pytest.approx(5.67e12 / 2e12, rel=1e-3)
    assert 0.90 < found.share < 0.95
    assert found.to_json()["failures_per_day"] == pytest.approx(419 / 54, rel=1e-3)


def test_stated_times_win():
    run = RunRequest(checkpoint_s=10.0, checkpoint_interval_s=100.0, restart_s=0.0, mtbf_device_hours=1e12)
    found = expected_goodput(run, 8, 1e12)
    assert (found.checkpoint_s, found.interval_s) == (10.0, 100.0)
    assert found.share == pytest.approx(100.0 / 110.0, rel=1e-6)  # hardly a failure: work over work and save
