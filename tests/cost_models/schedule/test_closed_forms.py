"""Closed forms of even pipelines against the simulator, on random cases."""

import numpy as np
import pytest

from cost_models.schedule import PipelineDurations, ScheduleName, simulate

CASES = 40


def even(p, v, forward, backward, weight, pair=None):
    ones = np.ones((p, v))
    parts = {"input_gradient_s": (backward - weight) * ones, "weight_gradient_s": weight * ones}
    if pair is not None:
        parts |= {"paired_forward_s": pair * ones, "paired_backward_s": 0.0 * ones}
    return PipelineDurations(forward * ones, backward * ones, **parts)


def draw(rng):
    forward, weight = 0.5 + rng.random(), 0.5 + rng.random()
    return forward, forward + weight, weight


@pytest.mark.parametrize("seed", range(CASES))
def test_whole_backwards(seed):
    rng = np.random.default_rng(seed)
    p, v, groups = int(rng.integers(2, 9)), int(rng.integers(2, 5)), int(rng.integers(1, 9))
    forward, backward, weight = draw(rng)
    m = int(rng.integers(p, 60))
    found = simulate(ScheduleName.ONE_F_ONE_B, p, 1, m, even(p, 1, forward, backward, weight)).step_s
    assert found == pytest.approx((m + p - 1) * (forward + backward))
    found = simulate(ScheduleName.GPIPE, p, 1, m, even(p, 1, forward, backward, weight)).step_s
    assert found == pytest.approx((m + p - 1) * (forward + backward))
    chunks = even(p, v, forward, backward, weight)
    found = simulate(ScheduleName.INTERLEAVED, p, v, groups * p, chunks).step_s
    assert found == pytest.approx((groups * p * v + p - 1) * (forward + backward))


@pytest.mark.parametrize("seed", range(CASES))
def test_split_backwards(seed):
    rng = np.random.default_rng(seed)
    p, forward = int(rng.integers(2, 9)), 0.5 + rng.random()
    # zb-h1 with an input gradient as long as the forward, and a weight gradient no longer than both
    weight = forward * (0.2 + 0.8 * rng.random())
    m = int(rng.integers(3 * p, 80))
    found = simulate(ScheduleName.ZB_H1, p, 1, m, even(p, 1, forward, forward + weight, weight))
    assert found.step_s == pytest.approx(m * (2 * forward + weight) + (p - 1) * (2 * forward - weight))
    # zb-v: no bubble but the ramp of even thirds
    thirds = even(p, 2, forward, 2 * forward, forward)
    assert simulate(ScheduleName.ZB_V, p, 2, m, thirds).step_s == pytest.approx((6 * m + p - 1) * forward)
    # dualpipe-v: one after the other, and in pairs, which hand on later, up to the report's bubble
    backward, pair = forward + weight, 2 * forward + weight
    apart, joined = (
        simulate(ScheduleName.DUALPIPE_V, p, 2, 2 * m, even(p, 2, forward, backward, weight, each))
        for each in (None, pair)
    )
    bubbles = [float(found.step_s - found.rank_busy_s.max()) / (p - 1) for found in (apart, joined)]
    assert bubbles[0] == pytest.approx(2 * forward - weight)
    assert bubbles[0] <= bubbles[1] <= (pair + backward - 3 * weight) * (1 + 1e-9)
    assert bubbles[1] > 0.7 * (pair + backward - 3 * weight)
