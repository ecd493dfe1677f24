"""Step times: hand-worked steps, an independent simulator, and the exact extension by cycles."""

import numpy as np
import pytest

from cost_models.schedule import (
    Phase,
    PipelineDurations,
    ScheduleName,
    operations,
    simulate,
    simulate_operations,
)

GPIPE, ONE_F_ONE_B, INTERLEAVED = ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED


def _even(p, v, forward_s, backward_s, **others):
    return PipelineDurations(np.full((p, v), forward_s), np.full((p, v), backward_s), **others)


def _random(rng, p, v, batch=None):
    """Uneven chunks, sometimes nearly even ones, with extras and send times."""
    shape = (p, v) if batch is None else (p, v, batch)
    spread = rng.choice([0.01, 0.3, 3.0])
    return PipelineDurations(
        forward_s=1.0 + spread * rng.random(shape),
        backward_s=2.0 + spread * rng.random(shape),
        first_forward_extra_s=rng.random(shape) * rng.integers(0, 2),
        last_backward_extra_s=rng.random(shape) * rng.integers(0, 2),
        send_s=0.2 * rng.random(shape[2:]) * rng.integers(0, 2),
    )


def _reference_ends(schedule, p, v, m, durations):
    """End of every operation by repeatedly running whatever is ready; shares only the operation lists."""
    send_s = float(durations.send_s)
    first, last = durations.first_forward_extra_s, durations.last_backward_extra_s
    pending = [list(reversed(rank_operations)) for rank_operations in operations(schedule, p, v, m)]
    clock, ends = [0.0] * p, {}
    while any(pending):
        for rank in range(p):
            while pending[rank]:
                phase, micro_batch, chunk = pending[rank][-1]
                stage = chunk * p + rank
                if phase is Phase.FORWARD:
                    source = (phase, micro_batch, stage - 1) if stage else None
                    seconds = durations.forward_s[rank, chunk] + (
                        first[rank, chunk] if first is not None and micro_batch == 0 else 0.0
                    )
                else:
                    source = (phase, micro_batch, stage + 1)
                    if stage == p * v - 1:
                        source = (Phase.FORWARD, micro_batch, stage)
                    seconds = durations.backward_s[rank, chunk] + (
                        last[rank, chunk] if last is not None and micro_batch == m - 1 else 0.0
                    )
                if source is not None and source not in ends:
                    break
                arrived = 0.0
                if source is not None:
                    arrived = ends[source] + (send_s if source[2] % p != rank else 0.0)
                clock[rank] = max(clock[rank], arrived) + seconds
                ends[phase, micro_batch, stage] = clock[rank]
                pending[rank].pop()
    return ends, clock


# ---------------------------------------------------------------- by hand


def test_1f1b_two_ranks_four_micro_batches():
    # rank 0: F0 0-1 F1 1-2 wait B0 4-6 F2 6-7 B1 7-9 F3 9-10 B2 10-12 B3 13-15
    # rank 1: F0 1-2 B0 2-4 F1 4-5 B1 5-7 F2 7-8 B2 8-10 F3 10-11 B3 11-13
    timeline = simulate(ONE_F_ONE_B, 2, 1, 4, _even(2, 1, 1.0, 2.0))
    assert timeline.rank_end_s.tolist() == [15.0, 13.0]
    assert timeline.step_s == 15.0  # (m + p - 1) (F + B) = 5 * 3
    assert timeline.rank_busy_s.tolist() == [12.0, 12.0]


def test_send_delays_every_step_between_ranks():
    # m = 1: F on rank 0, send, F and B on rank 1, send, B on rank 0: 1 + 0.5 + 3 + 0.5 + 2.
    assert simulate(ONE_F_ONE_B, 2, 1, 1, _even(2, 1, 1.0, 2.0, send_s=0.5)).step_s == 7.0


def test_extras_are_paid_by_the_first_forward_and_the_last_backward():
    # One rank, m = 3: 3 (1 + 2), plus 0.25 once and 0.5 once.
    durations = _even(
        1, 1, 1.0, 2.0, first_forward_extra_s=np.array([[0.25]]), last_backward_extra_s=np.array([[0.5]])
    )
    timeline = simulate(ONE_F_ONE_B, 1, 1, 3, durations)
    assert timeline.step_s == 9.75
    assert timeline.rank_busy_s.tolist() == [9.75]


@pytest.mark.parametrize(("p", "m"), [(1, 5), (2, 2), (4, 3), (4, 16), (16, 120)])
def test_even_1f1b_and_gpipe_take_m_plus_p_minus_1_micro_batches(p, m):
    for schedule in (ONE_F_ONE_B, GPIPE):
        assert simulate(schedule, p, 1, m, _even(p, 1, 1.0, 2.0)).step_s == (m + p - 1) * 3.0


@pytest.mark.parametrize(("p", "v", "m"), [(2, 2, 2), (2, 2, 4), (4, 3, 8), (8, 4, 64), (16, 2, 480)])
def test_even_interleaving_divides_the_bubble_by_v(p, v, m):
    # t = v (F + B) per rank and micro-batch; T = m t + (p - 1) t / v.
    assert simulate(INTERLEAVED, p, v, m, _even(p, v, 1.0, 2.0)).step_s == m * v * 3.0 + (p - 1) * 3.0


def test_slow_first_rank_takes_less_than_the_well_known_formula():
    # Rank 0 is busy 4 * 20 without a gap: 80; (m - 1) max t + sum t = 3 * 20 + 22 = 82.
    slow = np.array([[10.0], [1.0]])
    assert simulate(ONE_F_ONE_B, 2, 1, 4, PipelineDurations(slow, slow)).step_s == 80.0


# ---------------------------------------------------------------- against the independent simulator


@pytest.mark.parametrize(
    ("schedule", "p", "v", "m"),
    [
        (GPIPE, 4, 1, 6),
        (ONE_F_ONE_B, 1, 1, 9),
        (ONE_F_ONE_B, 2, 1, 40),
        (ONE_F_ONE_B, 5, 1, 3),
        (ONE_F_ONE_B, 6, 1, 77),
        (ONE_F_ONE_B, 16, 1, 120),
        (INTERLEAVED, 2, 2, 60),
        (INTERLEAVED, 3, 4, 27),
        (INTERLEAVED, 4, 3, 4),
        (INTERLEAVED, 4, 2, 96),
        (INTERLEAVED, 8, 2, 128),
    ],
)
def test_equal_to_running_whatever_is_ready(schedule, p, v, m):
    rng = np.random.default_rng(p * 1000 + m)
    for _ in range(3):
        durations = _random(rng, p, v)
        ends, rank_end_s = _reference_ends(schedule, p, v, m, durations)
        timeline = simulate(schedule, p, v, m, durations)
        np.testing.assert_allclose(timeline.rank_end_s, rank_end_s, rtol=1e-12)
        assert timeline.step_s == pytest.approx(max(rank_end_s), rel=1e-12)
        all_operations = simulate_operations(schedule, p, v, m, durations)
        names = zip(
            all_operations.phase.tolist(),
            all_operations.micro_batch.tolist(),
            (all_operations.chunk * p + all_operations.rank).tolist(),
            strict=True,
        )
        found = dict(zip(names, all_operations.end_s.tolist(), strict=True))
        assert found == pytest.approx(ends, rel=1e-12)
        assert len(found) == 2 * m * v * p


def test_instances_of_a_batch_are_those_simulated_alone():
    rng = np.random.default_rng(5)
    for schedule, p, v, m in ((GPIPE, 3, 1, 5), (ONE_F_ONE_B, 4, 1, 50), (INTERLEAVED, 4, 2, 64)):
        many = _random(rng, p, v, batch=20)
        timeline = simulate(schedule, p, v, m, many)
        assert timeline.rank_end_s.shape == (p, 20)
        assert timeline.step_s.shape == (20,)
        for column in range(20):
            one = PipelineDurations(
                many.forward_s[..., column],
                many.backward_s[..., column],
                many.first_forward_extra_s[..., column],
                many.last_backward_extra_s[..., column],
                many.send_s[column],
            )
            alone = simulate(schedule, p, v, m, one)
            assert alone.rank_end_s.tolist() == timeline.rank_end_s[:, column].tolist()
            assert alone.rank_busy_s.tolist() == pytest.approx(timeline.rank_busy_s[:, column].tolist())


def test_large_batch_is_run_in_blocks():
    rng = np.random.default_rng(6)
    many = PipelineDurations(rng.random((3, 1, 1100)), rng.random((3, 1, 1100)))
    step_s = simulate(ONE_F_ONE_B, 3, 1, 7, many).step_s
    for column in (0, 511, 512, 1099):
        one = PipelineDurations(many.forward_s[..., column], many.backward_s[..., column])
        assert simulate(ONE_F_ONE_B, 3, 1, 7, one).step_s == step_s[column]


# ---------------------------------------------------------------- extension by cycles, GPipe in closed form


@pytest.mark.parametrize(
    ("schedule", "p", "v", "m"),
    [
        (GPIPE, 1, 1, 3),
        (GPIPE, 7, 1, 1),
        (GPIPE, 8, 1, 120),
        (ONE_F_ONE_B, 2, 1, 480),
        (ONE_F_ONE_B, 3, 1, 301),
        (ONE_F_ONE_B, 8, 1, 480),
        (ONE_F_ONE_B, 16, 1, 479),
        (INTERLEAVED, 2, 2, 480),
        (INTERLEAVED, 3, 3, 300),
        (INTERLEAVED, 8, 4, 240),
        (INTERLEAVED, 16, 2, 480),
    ],
)
def test_extension_equals_running_every_cycle(schedule, p, v, m):
    # Times are whole multiples of a power of two, so equal means equal, not close.
    rng = np.random.default_rng(p * v * m)
    for batch in (None, None, 3, 30, 30, 30):
        durations = _random(rng, p, v, batch)
        quick = simulate(schedule, p, v, m, durations)
        full = simulate(schedule, p, v, m, durations, extend=False)
        np.testing.assert_array_equal(quick.rank_end_s, full.rank_end_s)


def test_period_of_several_micro_batches_is_found():
    # Even ranks with send time e: the slowest loop goes through all p ranks and back and returns p
    # micro-batches later, 4 * 3 + 6 e per 4 micro-batches; ends advance evenly over 4 but not over 1.
    durations = _even(4, 1, 1.0, 2.0, send_s=0.75)
    step_s = [float(simulate(ONE_F_ONE_B, 4, 1, m, durations).step_s) for m in (100, 101, 104, 108)]
    assert step_s[2] - step_s[0] == step_s[3] - step_s[2] == 4 * 3.0 + 6 * 0.75
    full_s = simulate(ONE_F_ONE_B, 4, 1, 101, durations, extend=False).step_s
    assert step_s[1] == full_s


def test_a_million_micro_batches_are_extended():
    # Only the extension can do this in a moment.
    assert simulate(ONE_F_ONE_B, 4, 1, 1_000_000, _even(4, 1, 1.0, 2.0)).step_s == 1_000_003 * 3.0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_negative_or_non_finite_durations_are_refused(bad):
    with pytest.raises(ValueError, match="negative or non-finite"):
        _even(2, 1, 1.0, bad)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"pp=4 and vpp=1; use shape \(4, 1\)"):
        simulate(ONE_F_ONE_B, 4, 1, 8, _even(2, 1, 1.0, 2.0))
    with pytest.raises(ValueError, match="give all of them one shape"):
        PipelineDurations(np.ones((2, 1)), np.ones((2, 2)))
    with pytest.raises(ValueError, match="axes"):
        PipelineDurations(np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="empty"):
        PipelineDurations(np.ones((2, 1, 0)), np.ones((2, 1, 0)))
    with pytest.raises(ValueError, match="send_s has shape"):
        _even(2, 1, 1.0, 2.0, send_s=np.ones(3))
    with pytest.raises(ValueError, match="hold 3 instances; give one"):
        simulate_operations(ONE_F_ONE_B, 2, 1, 4, PipelineDurations(np.ones((2, 1, 3)), np.ones((2, 1, 3))))
