"""Forward and backward side by side in the dualpipe schedules: who is paired, how long it takes, bounds, cycles."""

import numpy as np
import pytest

from cost_models.schedule import (
    PipelineDurations,
    ScheduleName,
    critical_path,
    operations,
    rank_bound,
    simulate,
    simulate_operations,
    step_bound,
)
from cost_models.schedule.operations import operation_table, pass_counts

V, BOTH = ScheduleName.DUALPIPE_V, ScheduleName.DUALPIPE
POINTS = [(V, 2, 4), (V, 2, 5), (V, 3, 60), (V, 4, 8), (BOTH, 4, 8), (BOTH, 4, 80), (BOTH, 6, 14)]


def durations_of(rng, p, batch=None):
    shape = (p, 2) if batch is None else (p, 2, batch)
    forward, backward, weight = (low + 0.5 * rng.random(shape) for low in (1.0, 2.0, 0.5))
    hidden = 0.4 * rng.random(shape)
    return PipelineDurations(
        forward,
        backward,
        send_s=0.1,
        input_gradient_s=backward - weight,
        weight_gradient_s=weight,
        paired_forward_s=forward + backward[:, ::-1] - hidden,
        paired_backward_s=np.zeros(shape),
    )


def test_the_pairs_of_a_small_list():
    # dualpipe-v, p = 2, m = 4, rank 0: warm-up Fn Fn, (Fn Ff), I W Ff, then the pairs Fn+Bf and Ff+Bn, and one Ff+Bn
    # after a lone Bf; F of the far chunk thus stands in two pairs.
    pairs = operation_table(V, 2, 2, 4).pairs(V)[0]
    listed = operations(V, 2, 2, 4)[0]
    shown = [
        (op.phase.name[0], op.chunk, op.micro_batch) for op, pair in zip(listed, pairs, strict=False) if pair
    ]
    assert shown == [("F", 0, 3), ("B", 1, 1), ("F", 1, 2), ("B", 0, 0), ("F", 1, 3), ("B", 0, 1)]
    counts = pass_counts(V, 2, 2, 4)
    assert counts.paired_forwards[0].tolist() == [1, 2]
    assert counts.paired_backwards[0].tolist() == [2, 1]
    assert not operation_table(ScheduleName.INTERLEAVED, 2, 2, 4).pairs(ScheduleName.INTERLEAVED).any()


def test_even_pairs_by_hand():
    # F = I = W = 1, a pair of 3 hides 0.5: a rank's 8 F and 8 B are 24 s of work, 0.5 s less for each of its pairs;
    # rank 0 has the three pairs of the test above: 22.5 s.
    ones = np.ones((2, 2))
    plain = PipelineDurations(ones, 2 * ones, input_gradient_s=ones, weight_gradient_s=ones)
    paired = PipelineDurations(
        ones,
        2 * ones,
        input_gradient_s=ones,
        weight_gradient_s=ones,
        paired_forward_s=2.5 * ones,
        paired_backward_s=0 * ones,
    )
    counts = pass_counts(V, 2, 2, 4)
    found = simulate(V, 2, 2, 4, paired)
    assert found.rank_busy_s.tolist() == [24 - 0.5 * int(row.sum()) for row in counts.paired_forwards]
    assert found.rank_busy_s[0] == 22.5
    assert simulate(V, 2, 2, 4, plain).rank_busy_s.tolist() == [24.0, 24.0]
    # The report's bubble with F&B = 2.5: (p - 1)(F&B + B - 3 W) = 1.5 s on the rank that waits least.
    assert min(found.step_s - found.rank_busy_s) == pytest.approx(1.5, abs=0.5)


@pytest.mark.parametrize(("schedule", "p", "m"), POINTS)
def test_bulk_cycles_paths_and_bounds_agree(schedule, p, m):
    rng = np.random.default_rng(p * m)
    many = durations_of(rng, p, 40)
    bulk = simulate(schedule, p, 2, m, many)
    assert (bulk.rank_end_s == simulate(schedule, p, 2, m, many, extend=False).rank_end_s).all()
    names = ("forward_s", "backward_s", "input_gradient_s", "weight_gradient_s")
    names += ("paired_forward_s", "paired_backward_s")
    for column in (0, 17):
        one = PipelineDurations(**{n: getattr(many, n)[..., column] for n in names}, send_s=many.send_s)
        assert simulate(schedule, p, 2, m, one).step_s == bulk.step_s[column]
        timeline = simulate_operations(schedule, p, 2, m, one)
        assert timeline.end_s.max() == bulk.step_s[column]
        busy = np.bincount(timeline.rank, weights=timeline.end_s - timeline.start_s)
        assert busy == pytest.approx(bulk.rank_busy_s[:, column], rel=1e-9)
        path = critical_path(schedule, p, 2, m, one)
        assert path.lower_bound_s(one) == pytest.approx(float(bulk.step_s[column]), rel=1e-9)
        assert (path.lower_bound_s(many) <= bulk.step_s * (1 + 1e-9)).all()
    assert (rank_bound(schedule, p, 2, m, many) <= bulk.step_s * (1 + 1e-9)).all()
    assert (step_bound(schedule, p, 2, m, many) <= bulk.step_s * (1 + 1e-9)).all()


def test_pairs_that_hide_more_are_no_slower():
    rng = np.random.default_rng(2)
    many = durations_of(rng, 4, 20)
    hides = PipelineDurations(
        many.forward_s,
        many.backward_s,
        send_s=0.1,
        input_gradient_s=many.input_gradient_s,
        weight_gradient_s=many.weight_gradient_s,
        paired_forward_s=0.9 * many.paired_forward_s,
        paired_backward_s=many.paired_backward_s,
    )
    assert (simulate(V, 4, 2, 40, hides).step_s < simulate(V, 4, 2, 40, many).step_s).all()
