"""Speed of the simulator at the size of DeepSeek-V3's pipeline, after the first call of a point."""

from time import perf_counter

import numpy as np
import pytest

from cost_models.schedule import PipelineDurations, ScheduleName, critical_path, simulate

POINTS = [
    (ScheduleName.ONE_F_ONE_B, 16, 1, 120),
    (ScheduleName.ONE_F_ONE_B, 16, 1, 480),
    (ScheduleName.INTERLEAVED, 16, 2, 480),
    (ScheduleName.ZB_H1, 16, 1, 480),
    (ScheduleName.ZB_V, 16, 2, 240),
    (
        ScheduleName.DUALPIPE_V,
        16,
        2,
        120,
    ),  # DeepSeek-V3: 16 ranks, 2 chunks, 120 micro-batches, 7,680 operations
    (ScheduleName.DUALPIPE_V, 16, 2, 480),
    (ScheduleName.DUALPIPE, 16, 2, 240),
]


def _uneven(*shape):
    rng = np.random.default_rng(1)
    forward_s, backward_s = 0.5 + rng.random(shape), 1.0 + rng.random(shape)
    parts = {"input_gradient_s": 0.6 * backward_s, "weight_gradient_s": 0.4 * backward_s}
    parts |= {"paired_forward_s": forward_s + 0.9 * backward_s, "paired_backward_s": 0.0 * backward_s}
    return PipelineDurations(forward_s, backward_s, send_s=0.01, **parts)


def _best_s(function, *arguments):
    function(*arguments)
    seconds = []
    for _ in range(5):
        begin = perf_counter()
        function(*arguments)
        seconds.append(perf_counter() - begin)
    return min(seconds)


@pytest.mark.bench
@pytest.mark.parametrize("point", POINTS)
def test_one_instance_takes_under_2_ms(point):
    _, p, v, _ = point
    assert _best_s(simulate, *point, _uneven(p, v)) < 2e-3


@pytest.mark.bench
@pytest.mark.parametrize("point", POINTS, ids=lambda point: "-".join(map(str, point)))
def test_an_instance_of_a_batch_takes_under_500_us(point, record_property):
    _, p, v, _ = point
    each_s = _best_s(simulate, *point, _uneven(p, v, 200)) / 200
    record_property("seconds_each", each_s)
    assert each_s < 500e-6


@pytest.mark.bench
@pytest.mark.parametrize("point", POINTS)
def test_critical_path_takes_under_100_ms(point):
    _, p, v, _ = point
    assert _best_s(critical_path, *point, _uneven(p, v)) < 100e-3
