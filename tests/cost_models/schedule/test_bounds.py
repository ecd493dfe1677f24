"""Every closed-form bound is at most the simulated step, on 10,000 random uneven pipelines per schedule."""

import numpy as np
import pytest

from cost_models.schedule import (
    PipelineDurations,
    ScheduleName,
    fill_drain_bound,
    gpipe_bound,
    rank_bound,
    rank_bound_with_tail,
    simulate,
    step_bound,
    total_bound,
)

GPIPE, ONE_F_ONE_B, INTERLEAVED = ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED

SHAPES, INSTANCES = 50, 200
ROUNDING = 1 + 1e-12


def _random(rng, shape):
    """Lognormal chunks; extras and sends in most instances, zero chunks in some."""
    batch = shape[2:]
    return PipelineDurations(
        forward_s=rng.lognormal(0.0, 1.0, shape) * (rng.random(shape) > 0.05),
        backward_s=rng.lognormal(0.5, 1.0, shape),
        first_forward_extra_s=rng.exponential(2.0, shape) * rng.integers(0, 2, batch),
        last_backward_extra_s=rng.exponential(2.0, shape) * rng.integers(0, 2, batch),
        send_s=rng.exponential(0.5, batch) * rng.integers(0, 2, batch),
    )


def _points(schedule):
    """SHAPES points (p, v, m), few and many micro-batches among them."""
    rng = np.random.default_rng(11)
    for _ in range(SHAPES):
        if schedule is INTERLEAVED:
            p, v = int(rng.integers(2, 9)), int(rng.integers(2, 5))
            yield p, v, p * int(rng.integers(1, 8))
        else:
            yield int(rng.integers(1, 13)), 1, int(rng.choice([1, 2, 3, 5, 8, 13, 24, 40]))


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B, INTERLEAVED])
def test_every_bound_is_at_most_the_step(schedule):
    rng = np.random.default_rng(12)
    instances = 0
    for p, v, m in _points(schedule):
        durations = _random(rng, (p, v, INSTANCES))
        timeline = simulate(schedule, p, v, m, durations)
        limit_s = timeline.step_s * ROUNDING
        point = (schedule, p, v, m)
        work_s = (durations.forward_s + durations.backward_s).sum(axis=(0, 1))
        assert (rank_bound(*point, durations) <= limit_s).all(), point
        assert (fill_drain_bound(*point, durations) <= limit_s).all(), point
        assert (total_bound(*point, work_s) <= limit_s).all(), point
        assert (step_bound(*point, durations) <= limit_s).all(), point
        tail_s = rng.exponential(5.0, (p, INSTANCES))
        with_tail_s = (timeline.rank_end_s + tail_s).max(axis=0) * ROUNDING
        assert (rank_bound_with_tail(*point, durations, tail_s) <= with_tail_s).all(), point
        instances += INSTANCES
    assert instances == 10_000


def test_gpipe_bound_is_the_step_run_operation_by_operation():
    rng = np.random.default_rng(13)
    for p, _, m in _points(GPIPE):
        durations = _random(rng, (p, 1, 20))
        step_s = simulate(GPIPE, p, 1, m, durations, extend=False).step_s
        np.testing.assert_allclose(gpipe_bound(m, durations), step_s, rtol=1e-12)


def test_well_known_formula_is_not_a_bound():
    # p = 2, F = B = (10, 1), m = 4: the formula says 3 * 20 + 22 = 82, the schedule takes 80.
    slow = np.array([[10.0], [1.0]])
    durations = PipelineDurations(slow, slow)
    rank_s = (slow + slow)[:, 0]
    formula_s = 3 * rank_s.max() + rank_s.sum()
    step_s = simulate(ONE_F_ONE_B, 2, 1, 4, durations).step_s
    assert (formula_s, step_s) == (82.0, 80.0)
    # rank 0: 4 * 20; rank 1: 10 + 4 * 2 + 10.
    assert rank_bound(ONE_F_ONE_B, 2, 1, 4, durations).tolist() == [80.0, 28.0]


def test_even_1f1b_meets_its_rank_and_fill_drain_bounds():
    # F = 1, B = 2, p = 4, m = 8: the step is (8 + 3) 3 = 33; rank 3: 3 * 1 + 8 * 3 + 3 * 2 = 33.
    durations = PipelineDurations(np.full((4, 1), 1.0), np.full((4, 1), 2.0))
    assert rank_bound(ONE_F_ONE_B, 4, 1, 8, durations).tolist() == [24.0, 27.0, 30.0, 33.0]
    # First path: 12 + 7 * 2 + max(0, 8 - 4 + i) * 1 = 30, 31, 32, 33;
    # last path: 12 + 7 * 1 + (4 + i) * 2 = 27, 29, 31, 33.
    assert fill_drain_bound(ONE_F_ONE_B, 4, 1, 8, durations).tolist() == [30.0, 31.0, 32.0, 33.0]
    # 12 / (1 - (7/8)**4) = 28.99
    assert total_bound(ONE_F_ONE_B, 4, 1, 8, np.array(12.0)) == pytest.approx(12 / (1 - (7 / 8) ** 4))


def test_rank_bound_counts_extras_and_sends_on_its_path():
    # Rank 1 of 2, m = 2: f0 = 1 + 0.5, all of rank 1 = 2 (1 + 2) + 0.5 + 0.25, b0 = 2 + 0.25, two sends.
    ones = np.ones((2, 1))
    durations = PipelineDurations(ones, 2 * ones, 0.5 * ones, 0.25 * ones, send_s=0.125)
    assert rank_bound(ONE_F_ONE_B, 2, 1, 2, durations)[1] == 1.5 + 6.75 + 2.25 + 0.25
    assert rank_bound(ONE_F_ONE_B, 2, 1, 2, durations)[0] == 6.75


def test_tail_of_an_earlier_rank_counts_from_its_last_backward():
    # Rank 1 of 2: F0 = 1, then 4 (1 + 2), then max(tail of rank 1, B0 + tail of rank 0) = max(1, 2 + 5).
    durations = PipelineDurations(np.ones((2, 1)), np.full((2, 1), 2.0))
    bound_s = rank_bound_with_tail(ONE_F_ONE_B, 2, 1, 4, durations, np.array([5.0, 1.0]))
    assert bound_s.tolist() == [12.0 + 5.0, 1.0 + 12.0 + 7.0]
