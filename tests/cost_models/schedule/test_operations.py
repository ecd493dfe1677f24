"""Operation lists and the rules that refuse illegal points."""

import pytest

from cost_models.schedule import (
    IllegalScheduleError,
    Operation,
    Phase,
    ScheduleName,
    operations,
    schedule_violations,
)

GPIPE, ONE_F_ONE_B, INTERLEAVED = ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED


def _text(rank_operations):
    """F0.1 is the forward of micro-batch 0 through chunk 1; the chunk is left out when it is 0."""
    names = []
    for phase, micro_batch, chunk in rank_operations:
        names.append(f"{phase.name[0]}{micro_batch}" + (f".{chunk}" if chunk else ""))
    return " ".join(names)


def test_gpipe_runs_all_forwards_then_all_backwards():
    for rank_operations in operations(GPIPE, 2, 1, 3):
        assert _text(rank_operations) == "F0 F1 F2 B0 B1 B2"


def test_1f1b_warms_up_by_the_ranks_after_it():
    lists = operations(ONE_F_ONE_B, 3, 1, 4)
    assert [_text(rank_operations) for rank_operations in lists] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_interleaved_takes_groups_of_p_micro_batches_through_the_chunks():
    # Warm-up of rank 0: 2 (2 - 1) + (2 - 1) 2 = 4 forwards; of rank 1: 2.
    lists = operations(INTERLEAVED, 2, 2, 4)
    assert [_text(rank_operations) for rank_operations in lists] == [
        "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3",
        "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3",
    ]


def test_one_rank_accumulates_gradients():
    assert _text(operations(ONE_F_ONE_B, 1, 1, 3)[0]) == "F0 B0 F1 B1 F2 B2"
    assert operations(ONE_F_ONE_B, 1, 1, 1) == (
        (Operation(Phase.FORWARD, 0, 0), Operation(Phase.BACKWARD, 0, 0)),
    )


@pytest.mark.parametrize(
    ("schedule", "p", "v", "m"),
    [
        (GPIPE, 5, 1, 7),
        (ONE_F_ONE_B, 16, 1, 3),
        (ONE_F_ONE_B, 4, 1, 40),
        (INTERLEAVED, 4, 3, 4),
        (INTERLEAVED, 3, 4, 21),
    ],
)
def test_every_rank_runs_every_operation_once_between_chunk_0_and_chunk_0(schedule, p, v, m):
    expected = {
        (phase, micro_batch, chunk)
        for phase in (Phase.FORWARD, Phase.BACKWARD)
        for micro_batch in range(m)
        for chunk in range(v)
    }
    for rank_operations in operations(schedule, p, v, m):
        assert len(rank_operations) == 2 * m * v
        assert set(rank_operations) == expected
        # The rank bounds rest on these two.
        assert rank_operations[0] == (Phase.FORWARD, 0, 0)
        assert rank_operations[-1] == (Phase.BACKWARD, m - 1, 0)


def test_lists_are_cached():
    assert operations(ONE_F_ONE_B, 4, 1, 8) is operations(ONE_F_ONE_B, 4, 1, 8)


@pytest.mark.parametrize(
    ("point", "rule", "nearest"),
    [
        ((GPIPE, 4, 2, 8), "schedule-one-chunk", (1,)),
        ((ONE_F_ONE_B, 4, 2, 8), "schedule-one-chunk", (1,)),
        ((INTERLEAVED, 1, 2, 8), "interleaved-ranks", (2,)),
        ((INTERLEAVED, 4, 1, 8), "interleaved-chunks", (2,)),
        ((INTERLEAVED, 4, 2, 10), "interleaved-micro-batches", (8, 12)),
        ((INTERLEAVED, 4, 2, 3), "interleaved-micro-batches", (4,)),
        ((ScheduleName.ZB_H1, 1, 1, 8), "split-backward-ranks", (2,)),
        ((ScheduleName.ZB_H1, 4, 2, 8), "schedule-one-chunk", (1,)),
        ((ScheduleName.ZB_V, 4, 1, 8), "schedule-two-chunks", (2,)),
        ((ScheduleName.DUALPIPE_V, 4, 2, 7), "dualpipe-micro-batches", (8,)),
        ((ScheduleName.DUALPIPE, 5, 2, 12), "dualpipe-ranks", (4, 6)),
        ((ScheduleName.DUALPIPE, 4, 2, 11), "dualpipe-even-micro-batches", (10, 12)),
        ((ScheduleName.DUALPIPE, 4, 2, 6), "dualpipe-micro-batches", (8,)),
        ((ONE_F_ONE_B, 0, 1, 8), "schedule-positive", (1,)),
        ((ONE_F_ONE_B, 4, 0, 8), "schedule-positive", (1,)),
        ((ONE_F_ONE_B, 4, 1, 0), "schedule-positive", (1,)),
    ],
)
def test_illegal_point_is_refused_by_rule(point, rule, nearest):
    (violation,) = schedule_violations(*point)
    assert (violation.rule, violation.nearest) == (rule, nearest)
    with pytest.raises(IllegalScheduleError, match=r"\d") as caught:
        operations(*point)
    assert caught.value.violations == (violation,)


def test_every_point_is_legal_or_refused_by_rule():
    for schedule in (GPIPE, ONE_F_ONE_B, INTERLEAVED):
        for p, v, m in ((p, v, m) for p in range(1, 17) for v in range(1, 5) for m in range(1, 65)):
            is_interleaved = schedule is INTERLEAVED
            legal = p > 1 and v > 1 and m % p == 0 if is_interleaved else v == 1
            assert (schedule_violations(schedule, p, v, m) == ()) is legal
