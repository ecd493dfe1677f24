"""In-flight counts equal the schedules' own definitions at every legal point."""

import numpy as np

from cost_models.schedule import Phase, ScheduleName, in_flight, operations, schedule_violations

GPIPE, ONE_F_ONE_B, INTERLEAVED = ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED


def _defined_peak(schedule, p, v, m, rank):
    """Chunks held at the peak, by the definitions of the schedules' authors."""
    if schedule is GPIPE:
        return m
    if schedule is ONE_F_ONE_B:
        return min(m, p - rank)
    # Megatron-LM schedules.py get_pp_rank_microbatches: warm-up plus the running one.
    return min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1)


def test_peak_is_the_definition_of_the_schedule():
    checked = 0
    for schedule in (GPIPE, ONE_F_ONE_B, INTERLEAVED):
        for p, v, m in ((p, v, m) for p in range(2, 17) for v in range(1, 5) for m in range(1, 65)):
            if schedule_violations(schedule, p, v, m):
                continue
            held = in_flight(schedule, p, v, m)
            peaks = [held.peak_total(rank) for rank in range(p)]
            assert peaks == [_defined_peak(schedule, p, v, m, rank) for rank in range(p)], (schedule, p, v, m)
            checked += 1
    # 15 p x 64 m for each of the two; for interleaving 3 v x sum of floor(64 / p) over p = 2..16, 147.
    assert checked == 2 * 15 * 64 + 3 * 147


def test_vectors_of_two_ranks_and_two_chunks():
    # Rank 0 of (p, v, m) = (2, 2, 4) runs F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 ...: after F2
    # it holds 3 of chunk 0 and 2 of chunk 1; after F3, 4 and 1 (B0.1 is done); after F3.1 (B0 done) 3 and 2.
    # Rank 1 runs F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 ...: at most 3 and 0, or 2 and 1.
    held = in_flight(INTERLEAVED, 2, 2, 4)
    assert held.vectors == (((4, 1), (3, 2)), ((3, 0), (2, 1)))
    assert held.peak_total(0) == 5
    assert held.peak_total(1) == 3


def test_more_micro_batches_hold_no_more():
    for schedule, p, v in ((ONE_F_ONE_B, 5, 1), (INTERLEAVED, 4, 3), (INTERLEAVED, 6, 2)):
        counted = [_count(schedule, p, v, groups * p) for groups in range(1, 12)]
        assert counted == [in_flight(schedule, p, v, groups * p).vectors for groups in range(1, 12)]
        assert counted[4:] == counted[4:5] * 7


def _count(schedule, p, v, m):
    """Pareto-maximal vectors of all moments, straight from the lists."""
    found = []
    for rank_operations in operations(schedule, p, v, m):
        held, moments = [0] * v, set()
        for phase, _, chunk in rank_operations:
            held[chunk] += phase is Phase.FORWARD
            moments.add(tuple(held))
            held[chunk] -= phase is Phase.BACKWARD
        maximal = [a for a in moments if not any(b != a and np.all(np.subtract(b, a) >= 0) for b in moments)]
        found.append(tuple(sorted(maximal, reverse=True)))
    return tuple(found)


def test_vectors_are_pareto_maximal():
    for vectors in in_flight(INTERLEAVED, 8, 4, 32).vectors:
        for vector in vectors:
            others = [other for other in vectors if other != vector]
            assert not any(all(a >= b for a, b in zip(other, vector, strict=True)) for other in others)
