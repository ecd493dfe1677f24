"""Step times of schedules that split their backward: an independent simulator, cycles, paths, bounds, memory."""

import numpy as np
import pytest

from cost_models.schedule import (
    Phase,
    PipelineDurations,
    ScheduleName,
    critical_path,
    in_flight,
    num_stages,
    operations,
    rank_bound,
    rank_bound_with_tail,
    simulate,
    simulate_operations,
    stage_of,
    step_bound,
)
from cost_models.schedule.graph import Column, graph, whole_graph

ZB_H1, ZB_V = ScheduleName.ZB_H1, ScheduleName.ZB_V
DUALPIPE, DUALPIPE_V = ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V

POINTS = [
    (ZB_H1, 2, 1, 1),
    (ZB_H1, 4, 1, 3),
    (ZB_H1, 5, 1, 40),
    (ZB_V, 2, 2, 1),
    (ZB_V, 3, 2, 4),
    (ZB_V, 4, 2, 60),
    (DUALPIPE_V, 2, 2, 4),
    (DUALPIPE_V, 4, 2, 8),
    (DUALPIPE_V, 3, 2, 60),
    (DUALPIPE, 2, 2, 4),
    (DUALPIPE, 6, 2, 12),
    (DUALPIPE, 4, 2, 80),
]
LARGE = [
    (ZB_H1, 2, 1, 300),
    (ZB_H1, 8, 1, 301),
    (ZB_V, 2, 2, 200),
    (ZB_V, 7, 2, 301),
    (DUALPIPE_V, 2, 2, 201),
    (DUALPIPE_V, 7, 2, 240),
    (DUALPIPE, 2, 2, 200),
    (DUALPIPE, 8, 2, 302),
]


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
        input_gradient_s=1.0 + spread * rng.random(shape),
        weight_gradient_s=1.0 + spread * rng.random(shape),
    )


def _column(many, column):
    parts = ("forward_s", "backward_s", "first_forward_extra_s", "last_backward_extra_s")
    parts += ("input_gradient_s", "weight_gradient_s")
    one = {part: getattr(many, part)[..., column] for part in parts}
    return PipelineDurations(**one, send_s=many.send_s[column])


def _seconds(durations, operation, rank, first, last):
    phase, number, chunk = operation
    plain = (
        durations.forward_s,
        durations.backward_s,
        durations.input_gradient_s,
        durations.weight_gradient_s,
    )[phase]
    seconds = plain[rank, chunk]
    if phase is Phase.FORWARD and number == first:
        seconds += durations.first_forward_extra_s[rank, chunk]
    if phase in (Phase.BACKWARD, Phase.WEIGHT_GRADIENT) and number == last:
        seconds += durations.last_backward_extra_s[rank, chunk]
    return seconds


def _reference_ends(schedule, p, v, m, durations):
    """End of every operation by repeatedly running whatever is ready; shares lists and placement only."""
    stages = num_stages(schedule, p, v)
    pending = [list(reversed(listed)) for listed in operations(schedule, p, v, m)]
    clock, arrivals, ends = [0.0] * p, {}, {}
    while any(pending):
        for rank in range(p):
            while pending[rank]:
                phase, number, chunk = operation = pending[rank][-1]
                stage = stage_of(schedule, p, rank, chunk)
                forward, source = phase is Phase.FORWARD, None
                if phase is not Phase.WEIGHT_GRADIENT and stage != (0 if forward else stages - 1):
                    source = (forward, number, stage + (-1 if forward else 1))
                if source and source not in arrivals:
                    break
                ready, where = arrivals[source] if source else (0.0, rank)
                ready += durations.send_s if where != rank else 0.0
                first, last = (chunk, m - 2 + chunk) if schedule is DUALPIPE else (0, m - 1)
                clock[rank] = max(clock[rank], ready) + _seconds(durations, operation, rank, first, last)
                ends[rank, *operation] = clock[rank]
                if phase is not Phase.WEIGHT_GRADIENT:
                    arrivals[forward, number, stage] = clock[rank], rank
                pending[rank].pop()
    return ends, clock


@pytest.mark.parametrize("point", POINTS)
def test_equal_to_running_whatever_is_ready(point):
    _, p, v, m = point
    rng = np.random.default_rng(p * 1000 + m)
    for _ in range(3):
        durations = _random(rng, p, v)
        ends, rank_end_s = _reference_ends(*point, durations)
        timeline = simulate(*point, durations)
        np.testing.assert_allclose(timeline.rank_end_s, rank_end_s, rtol=1e-12)
        found = simulate_operations(*point, durations)
        columns = (found.rank, found.phase, found.micro_batch, found.chunk)
        names = zip(*(column.tolist() for column in columns), strict=True)
        assert dict(zip(names, found.end_s.tolist(), strict=True)) == pytest.approx(ends, rel=1e-12)
        busy_s = [(found.end_s - found.start_s)[found.rank == rank].sum() for rank in range(p)]
        np.testing.assert_allclose(timeline.rank_busy_s, busy_s, rtol=1e-12)


@pytest.mark.parametrize("point", LARGE)
def test_extension_equals_running_every_cycle(point):
    _, p, v, m = point
    rng = np.random.default_rng(p * v * m)
    for batch in (None, None, 3, 30, 30):
        durations = _random(rng, p, v, batch)
        quick, full = (simulate(*point, durations, extend=extend) for extend in (True, False))
        np.testing.assert_array_equal(quick.rank_end_s, full.rank_end_s)


def test_instances_of_a_batch_are_those_simulated_alone():
    rng = np.random.default_rng(5)
    for point in POINTS[2::3]:
        many = _random(rng, point[1], point[2], batch=20)
        ends_s = simulate(*point, many).rank_end_s
        for column in (0, 7, 19):
            assert simulate(*point, _column(many, column)).rank_end_s.tolist() == ends_s[:, column].tolist()


@pytest.mark.parametrize("schedule", [ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V])
@pytest.mark.parametrize("p", [2, 3, 4, 6, 16])
def test_cycles_unroll_to_the_whole_graph(schedule, p):
    if schedule is DUALPIPE and p % 2:
        return
    point = (schedule, p, 1 if schedule is ZB_H1 else 2, 14 * p + 14)
    cyclic, whole = graph(*point), whole_graph(*point)
    assert cyclic.repeats > whole.repeats == 0
    columns = []
    for part, shift in cyclic.parts():
        moved = part.columns.copy()
        moved[Column.MICRO_BATCH] += shift
        columns.append(moved)
    np.testing.assert_array_equal(np.concatenate(columns, axis=1), whole.head.columns)
    assert (cyclic.level_count, cyclic.last_offset.tolist()) == (
        whole.level_count,
        whole.last_offset.tolist(),
    )


@pytest.mark.parametrize("point", [*POINTS, LARGE[1], LARGE[3], LARGE[5], LARGE[7]])
def test_path_is_the_step_of_its_own_and_at_most_the_step_of_other_durations(point):
    rng = np.random.default_rng(point[3])
    others = _random(rng, point[1], point[2], 30)
    limits_s = simulate(*point, others).step_s * (1 + 1e-12)
    for _ in range(3):
        durations = _random(rng, point[1], point[2])
        path = critical_path(*point, durations)
        assert path.lower_bound_s(durations) == pytest.approx(simulate(*point, durations).step_s, rel=1e-12)
        assert (path.lower_bound_s(others) <= limits_s).all()


@pytest.mark.parametrize("schedule", [ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V])
def test_every_bound_is_at_most_the_step(schedule):
    rng = np.random.default_rng(12)
    for _ in range(25):
        p = 2 * int(rng.integers(1, 6))
        m = 2 * p + 2 * int(rng.integers(0, 12))
        point = (schedule, p, 1 if schedule is ZB_H1 else 2, m)
        durations = _random(rng, p, point[2], 400)
        timeline = simulate(*point, durations)
        limit_s = timeline.step_s * (1 + 1e-12)
        assert (rank_bound(*point, durations) <= limit_s).all()
        if schedule is DUALPIPE:  # two copies of one stage take the same time
            durations = _mirrored(durations)
            limit_s = simulate(*point, durations).step_s * (1 + 1e-12)
        assert (step_bound(*point, durations) <= limit_s).all()
        tail_s = rng.exponential(5.0, (p, 400))
        ends_s = (simulate(*point, durations).rank_end_s + tail_s).max(axis=0) * (1 + 1e-12)
        assert (rank_bound_with_tail(*point, durations, tail_s) <= ends_s).all()


def _mirrored(durations):
    parts = ("forward_s", "backward_s", "first_forward_extra_s", "last_backward_extra_s")
    parts += ("input_gradient_s", "weight_gradient_s")
    found = {}
    for part in parts:
        values = getattr(durations, part).copy()
        values[:, 1] = values[::-1, 0]
        found[part] = values
    return PipelineDurations(**found, send_s=durations.send_s)


def test_even_zero_bubble_steps_of_many_micro_batches():
    # F = I = W = 1: zb-h1 takes 3 m + (p - 1); zb-v, of half as long chunks, 6 m + (p - 1) halves.
    for p, m in ((4, 100), (8, 1000)):
        for schedule, v in ((ZB_H1, 1), (ZB_V, 2)):
            ones = np.ones((p, v))
            durations = PipelineDurations(ones, 2 * ones, input_gradient_s=ones, weight_gradient_s=ones)
            assert simulate(schedule, p, v, m, durations).step_s == 3.0 * v * m + p - 1


def test_split_schedule_needs_both_gradients():
    with pytest.raises(ValueError, match="give both"):
        simulate(ZB_H1, 2, 1, 4, PipelineDurations(np.ones((2, 1)), np.ones((2, 1))))


# ---------------------------------------------------------------- memory


def _moments(schedule, p, v, m):
    """Of every rank, (waiting, halfway) per chunk while each operation runs, straight from the lists."""
    for listed in operations(schedule, p, v, m):
        waiting, halfway, moments = [0] * v, [0] * v, set()
        for phase, _, chunk in listed:
            waiting[chunk] += phase is Phase.FORWARD
            moments.add((*waiting, *halfway))
            waiting[chunk] -= phase in (Phase.BACKWARD, Phase.INPUT_GRADIENT)
            halfway[chunk] += (phase is Phase.INPUT_GRADIENT) - (phase is Phase.WEIGHT_GRADIENT)
        yield moments


def _covers(vectors, moments):
    return all(any(np.all(np.subtract(vector, moment) >= 0) for vector in vectors) for moment in moments)


@pytest.mark.parametrize("point", [*POINTS, *LARGE, (ScheduleName.ONE_F_ONE_B, 3, 1, 7)])
def test_split_vectors_cover_every_moment_and_are_reached(point):
    _, _, v, _ = point
    held = in_flight(*point)
    for rank, moments in enumerate(_moments(*point)):
        assert set(held.split_vectors[rank]) <= moments
        assert _covers(held.split_vectors[rank], moments)
        whole = {tuple(np.add(moment[:v], moment[v:]).tolist()) for moment in moments}
        assert set(held.vectors[rank]) <= whole
        assert _covers(held.vectors[rank], whole)


def test_zb_h1_holds_less_whole_activations_on_later_ranks():
    # p = 4: rank i waits with 4 - i micro-batches and has i more of which only the weight gradient is left (one
    # more while the first of these runs); rank 0 runs whole backwards.
    held = in_flight(ZB_H1, 4, 1, 20)
    assert [held.peak_total(rank) for rank in range(4)] == [4, 4, 4, 4]
    assert held.split_vectors == (((4, 0),), ((3, 1), (2, 2)), ((2, 2), (1, 3)), ((1, 3), (0, 4)))
