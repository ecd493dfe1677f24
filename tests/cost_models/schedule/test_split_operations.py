"""Operation lists with separate weight gradients: order, placement, published bubbles and memory."""

import pytest

from cost_models.schedule import (
    Phase,
    ScheduleName,
    num_stages,
    operations,
    rank_of_stage,
    schedule_violations,
    stage_of,
    stage_table,
)

ZB_H1, ZB_V = ScheduleName.ZB_H1, ScheduleName.ZB_V
DUALPIPE, DUALPIPE_V = ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V
LETTERS = {
    Phase.FORWARD: "F",
    Phase.BACKWARD: "B",
    Phase.INPUT_GRADIENT: "I",
    Phase.WEIGHT_GRADIENT: "W",
}


def _text(rank_operations):
    """I0.1 is the input gradient of micro-batch 0 through chunk 1; the chunk is left out when it is 0."""
    names = [
        f"{LETTERS[phase]}{micro_batch}" + (f".{chunk}" if chunk else "")
        for phase, micro_batch, chunk in rank_operations
    ]
    return " ".join(names)


def _points(p_most=9):
    for p in range(2, p_most):
        for m in (1, 2, p, 2 * p - 1, 2 * p, 2 * p + 3, 5 * p + 2):
            for schedule in (ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V):
                v = 1 if schedule is ZB_H1 else 2
                if not schedule_violations(schedule, p, v, m):
                    yield schedule, p, v, m


def test_zb_h1_runs_the_weight_gradients_of_a_rank_as_late_as_its_number():
    assert [_text(listed) for listed in operations(ZB_H1, 3, 1, 4)] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3",
        "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3",
    ]


def test_zb_v_goes_down_and_up_the_v():
    assert [_text(listed) for listed in operations(ZB_V, 2, 2, 4)] == [
        "F0 F1 F2 F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 F3 B0 F2.1 I2.1 W2.1 B1 F3.1 I3.1 W3.1 B2 B3",
        "F0 F0.1 F1 F1.1 I0.1 W0.1 F2 I0 W0 F2.1 I1.1 W1.1 F3 I1 W1 F3.1 I2.1 W2.1 I2 I3.1 I3 W2 W3.1 W3",
    ]


def test_dualpipe_v_pairs_forwards_with_whole_backwards():
    assert [_text(listed) for listed in operations(DUALPIPE_V, 2, 2, 4)] == [
        "F0 F1 F2 F0.1 I0.1 W0.1 F1.1 F3 B1.1 F2.1 B0 B2.1 F3.1 B1 B3.1 B2 B3",
        "F0 F0.1 F1 F1.1 F2 B0.1 F2.1 B0 F3 B1.1 F3.1 B1 B2.1 B2 I3.1 I3 W3.1 W3",
    ]


def test_dualpipe_is_dualpipe_v_folded_open():
    # Four ranks: ranks 0 and 3 mirror each other, as do 1 and 2; direction 0 runs the even micro-batches.
    folded = operations(DUALPIPE_V, 2, 2, 6)
    opened = operations(DUALPIPE, 4, 2, 12)
    for rank, listed in enumerate(folded):
        assert [(phase, 2 * number + chunk, chunk) for phase, number, chunk in listed] == list(opened[rank])
        mirrored = [(phase, 2 * number + 1 - chunk, 1 - chunk) for phase, number, chunk in listed]
        assert mirrored == list(opened[3 - rank])


def test_every_pass_runs_once_and_weights_follow_inputs():
    for point in _points():
        schedule, _, v, m = point
        for listed in operations(*point):
            assert len(set(listed)) == len(listed), point
            order = {operation: place for place, operation in enumerate(listed)}
            passes = [operation[1:] for operation in listed if operation.phase is Phase.FORWARD]
            halves = {(number, number % 2) for number in range(m)}
            everything = {(number, chunk) for number in range(m) for chunk in range(v)}
            assert set(passes) == (halves if schedule is DUALPIPE else everything), point
            for one in passes:
                forward = order[(Phase.FORWARD, *one)]
                if (Phase.BACKWARD, *one) in order:
                    assert order[(Phase.BACKWARD, *one)] > forward
                    assert (Phase.INPUT_GRADIENT, *one) not in order
                    assert (Phase.WEIGHT_GRADIENT, *one) not in order
                else:
                    first, then = order[(Phase.INPUT_GRADIENT, *one)], order[(Phase.WEIGHT_GRADIENT, *one)]
                    assert forward < first < then


def test_stages_of_the_schedules():
    assert stage_table(ScheduleName.INTERLEAVED, 2, 3).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert stage_table(ZB_H1, 3, 1).tolist() == [[0], [1], [2]]
    assert stage_table(ZB_V, 3, 2).tolist() == [[0, 5], [1, 4], [2, 3]]
    assert stage_table(DUALPIPE_V, 2, 2).tolist() == [[0, 3], [1, 2]]
    assert stage_table(DUALPIPE, 4, 2).tolist() == [[0, 3], [1, 2], [2, 1], [3, 0]]
    counts = [
        num_stages(schedule, 4, 2) for schedule in (ScheduleName.INTERLEAVED, ZB_V, DUALPIPE_V, DUALPIPE)
    ]
    assert counts == [8, 8, 8, 4]
    for schedule in ScheduleName:
        for rank in range(4):
            for chunk in range(2):
                stage = stage_of(schedule, 4, rank, chunk)
                assert rank_of_stage(schedule, 4, stage, chunk) == rank


def _held(listed):
    """Most chunk activations held at once, from a forward to the end of its backward."""
    held = most = 0
    for phase, _, _ in listed:
        held += phase is Phase.FORWARD
        most = max(most, held)
        held -= phase in (Phase.BACKWARD, Phase.WEIGHT_GRADIENT)
    return most


def test_peaks_are_the_published_ones():
    for point in _points():
        schedule, p, _, m = point
        peaks = [_held(listed) for listed in operations(*point)]
        if schedule is ZB_H1:  # that of 1F1B's rank 0, on every rank: arXiv 2401.10241, table 2
            assert peaks == [min(m, p)] * p
        elif schedule is ZB_V:  # p micro-batches of two halves: arXiv 2405.15362, table 1
            assert max(peaks) == min(2 * m, 2 * p)
        else:  # PP + 1 with PP stages: arXiv 2412.19437, table 2
            assert peaks == [(p if schedule is DUALPIPE else 2 * p) + 1] * p


def _ends(point, forward_s, input_s, weight_s):
    """End of every rank, running whatever is ready; equal chunks, no communication time."""
    schedule, p, v, _ = point
    seconds = dict(zip(Phase, (forward_s, input_s + weight_s, input_s, weight_s), strict=True))
    pending = [list(reversed(listed)) for listed in operations(*point)]
    clock, ends = [0.0] * p, {}
    while any(pending):
        before = len(ends)
        for rank in range(p):
            while pending[rank]:
                phase, number, chunk = pending[rank][-1]
                stage = stage_of(schedule, p, rank, chunk)
                source = None
                if phase is Phase.FORWARD and stage:
                    source = (True, number, stage - 1)
                elif phase in (Phase.BACKWARD, Phase.INPUT_GRADIENT):
                    source = (False, number, stage + 1)
                    if stage == num_stages(schedule, p, v) - 1:
                        source = (True, number, stage)
                if source and source not in ends:
                    break
                clock[rank] = max(clock[rank], ends[source] if source else 0.0) + seconds[phase]
                if phase is not Phase.WEIGHT_GRADIENT:
                    ends[phase is Phase.FORWARD, number, stage] = clock[rank]
                pending[rank].pop()
        assert len(ends) > before or not any(pending), f"{point}: the lists wait for each other"
    return clock


@pytest.mark.parametrize("seconds", [(1.0, 1.0, 1.0), (2.0, 3.0, 1.0), (4.0, 5.0, 3.0), (4.0, 3.0, 5.0)])
def test_bubbles_are_the_published_ones(seconds):
    forward_s, input_s, weight_s = seconds
    work_s = sum(seconds)
    for point in _points():
        schedule, p, v, m = point
        ends_s = _ends(point, *seconds)
        bubble_s = max(ends_s) - work_s * m * (1 if schedule is DUALPIPE else v)
        if schedule is ZB_H1 and m >= p:
            # (p - 1) (F + I - W), arXiv 2401.10241 table 2; a W longer than an I delays the last ones.
            assert bubble_s == (p - 1) * (forward_s + max(input_s - weight_s, 0.0)), point
        if schedule is ZB_V and m >= 2 * p and seconds == (1.0, 1.0, 1.0):
            # Zero but for the ramp to the last rank: arXiv 2405.15362, table 1.
            assert bubble_s == p - 1, point
        if schedule in (DUALPIPE, DUALPIPE_V):
            ranks = p // 2 if schedule is DUALPIPE else p
            assert bubble_s <= (ranks - 1) * (forward_s + 2 * input_s - weight_s), point
