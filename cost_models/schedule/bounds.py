"""Closed-form lower bounds on the step of a schedule, true for uneven chunks, extras and send times.

Each is the length of one path of the schedule's graph, hence at most the longest path, the simulated step.
Symbols: F[i,c], B[i,c] forward and backward seconds of chunk c of rank i; f, b the same with the extras of
the first and last micro-batch; t_i = sum_c (F + B)[i,c]; e = send_s.  Every rank's list starts with the
forward of micro-batch 0 through chunk 0 (dualpipe's second half of ranks: of micro-batch 1 through chunk 1)
and ends with the backward of the last micro-batch through chunk 0, unless the schedule splits its backward:
then it may end with any weight gradient, for which no other rank waits.

The well-known (m - 1) max t + sum t is not here: it is above the schedule for uneven stages (p = 2,
F = B = (10, 1), m = 4: 82 against 80).
"""

from functools import lru_cache

import numpy as np

from cost_models.schedule.durations import FloatArray, PipelineDurations, by_slot, rank_busy_s
from cost_models.schedule.gpipe import gpipe_rank_ends
from cost_models.schedule.graph import operation_slots
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray, operation_table, pass_counts
from cost_models.schedule.rank_list import Phase
from cost_models.schedule.rules import check_legal


def rank_bound(schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations) -> FloatArray:
    """T >= sum_{j<i} (f[j,0] + b[j,0]) + busy_i + 2 i e for every rank i, shape (p,) or (p, B).

    busy_i is m t_i with the extras of rank i.  Path: micro-batch 0 forward down chunk 0 to rank i, all of
    rank i's list, the last micro-batch backward up chunk 0 from rank i.  Without the way up, sum b + i e,
    where the schedule splits its backward.
    """
    check_legal(schedule, p, v, m)
    down_s, up_s = _first_chunk_sums(schedule, durations)
    bound_s: FloatArray = down_s + rank_busy_s(pass_counts(schedule, p, v, m), durations) + up_s
    return bound_s


def rank_bound_with_tail(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations, tail_s: FloatArray
) -> FloatArray:
    """Rank bound with tail_s more seconds after every rank's last backward, shape (p,) or (p, B).

    tail_s, shape (p,) or (p, B), is gradient sync that nothing hides; T is the latest end of them:
    T >= sum_{j<i} f[j,0] + busy_i + max_{l<=i} (sum_{l<=j<i} b[j,0] + (i - l) e + tail_l) + i e.
    Path: as in `rank_bound`, leaving the way up at rank l, whose list ends there.
    """
    check_legal(schedule, p, v, m)
    down_s, up_s = _first_chunk_sums(schedule, durations)
    busy_s = rank_busy_s(pass_counts(schedule, p, v, m), durations)
    if schedule.splits_backward:
        return np.asarray(down_s + busy_s + tail_s)
    # The way up from i to l is up_i - up_l, so the maximum over l <= i is a running one.
    after_s = up_s + np.maximum.accumulate(tail_s - up_s, axis=0)
    bound_s: FloatArray = down_s + busy_s + after_s
    return bound_s


def fill_drain_bound(
    schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations
) -> FloatArray:
    """One micro-batch through all virtual stages and back, and what else rank i runs; shape (p,) or (p, B).

    The larger of two paths for every rank i, each with 2 (p v - 1) e when p > 1:
    (first) micro-batch 0 forward through all chunks and back to chunk 0 of rank i, the rest of rank i's list,
    the last micro-batch backward up chunk 0;
    (last) micro-batch 0 forward down chunk 0 to rank i, rank i's list as far as the last micro-batch's
    forward of chunk 0, that micro-batch forward through all chunks after it and all the way back.
    Schedules that split their backward are not covered.
    For 1F1B without extras the first is sum t + (m - 1) B_i + max(0, m - p + i) F_i, the last the same with F
    and B exchanged.
    """
    slot_s = by_slot(durations)
    crossings = 2 * (p * v - 1) if p > 1 else 0
    paths_s = _fill_drain_counts(schedule, p, v, m) @ slot_s + crossings * np.asarray(durations.send_s)
    bound_s: FloatArray = paths_s.max(axis=0).reshape(p, *durations.forward_s.shape[2:])
    return bound_s


def gpipe_bound(m: int, durations: PipelineDurations) -> FloatArray:
    """T >= max_i (sum_{j<=i} f_j + (m-1) F_i + sum_{j>i} F_j) + the same of b, B + 2 (p-1) e; () or (B,).

    GPipe only.  Path: micro-batch 0 forward down to rank i, all forwards of i, the last micro-batch down to
    the last rank, micro-batch 0 back up to some rank k, all backwards of k, the last micro-batch up from k.
    It is exact: without extras the step of GPipe is sum t + (m-1) (max F + max B) + 2 (p-1) e.
    """
    p = len(durations.forward_s)
    slot_s = by_slot(durations).reshape(4, p, -1)
    send_s = np.broadcast_to(np.asarray(durations.send_s, dtype=np.float64), slot_s.shape[2:])
    return np.asarray(gpipe_rank_ends(m, slot_s, send_s)[0].reshape(durations.forward_s.shape[2:]))


def total_bound(schedule: ScheduleName, p: int, v: int, m: int, total_s: FloatArray) -> FloatArray:
    """Bound from total_s = S alone, the forward and backward seconds of one micro-batch over all chunks.

    GPipe and 1F1B: T >= S / (1 - (1 - 1/m)**p).  With s_i = sum_{j<i} t_j the rank bounds say
    T >= s_i + m (s_{i+1} - s_i), so s_{i+1} <= (1 - 1/m) s_i + T/m, and S = s_p <= T (1 - (1 - 1/m)**p).
    Others: T >= m S / p, because some rank computes at least S / p per micro-batch.
    """
    check_legal(schedule, p, v, m)
    if schedule not in (ScheduleName.GPIPE, ScheduleName.ONE_F_ONE_B):
        return total_s * (m / p)
    return total_s / (1.0 - (1.0 - 1.0 / m) ** p)


def step_bound(schedule: ScheduleName, p: int, v: int, m: int, durations: PipelineDurations) -> FloatArray:
    """Largest of this module's bounds for the schedule, shape () or (B,)."""
    backward_s = durations.backward_s
    if schedule.splits_backward:  # whole or in two, whatever is less
        backward_s = np.minimum(backward_s, sum(durations.split_s()))
    work_s = (durations.forward_s + backward_s).sum(axis=(0, 1))
    if schedule.has_two_chunks:  # as many forwards of a chunk as backwards of the other are in pairs
        forward_s, after_s = durations.paired_s()
        apart_s = durations.forward_s + backward_s[:, ::-1]
        work_s = np.minimum(apart_s, forward_s + after_s[:, ::-1]).sum(axis=(0, 1))
    if schedule is ScheduleName.DUALPIPE:  # both copies of a stage are in the sum
        work_s = work_s / 2
    bounds_s = [
        rank_bound(schedule, p, v, m, durations).max(axis=0),
        total_bound(schedule, p, v, m, work_s),
    ]
    if not schedule.splits_backward:
        bounds_s.append(fill_drain_bound(schedule, p, v, m, durations).max(axis=0))
    if schedule is ScheduleName.GPIPE:
        bounds_s.append(gpipe_bound(m, durations))
    return np.asarray(np.max(bounds_s, axis=0))


def _first_chunk_sums(schedule: ScheduleName, durations: PipelineDurations) -> tuple[FloatArray, FloatArray]:
    """Seconds of the first micro-batch to every rank, and of the last one back from it, with the sends."""
    first, last = durations.first_forward_extra_s, durations.last_backward_extra_s
    down_s = _before(durations.forward_s, first, durations.send_s, 0)
    if schedule is ScheduleName.DUALPIPE:
        half = len(down_s) // 2
        other_s = _before(
            durations.forward_s[::-1], None if first is None else first[::-1], durations.send_s, 1
        )
        down_s = np.concatenate((down_s[:half], other_s[::-1][half:]))
    if schedule.splits_backward:
        return down_s, np.zeros_like(down_s)
    return down_s, _before(durations.backward_s, last, durations.send_s, 0)


def _before(
    seconds: FloatArray, extra_s: FloatArray | None, send_s: float | FloatArray, chunk: int
) -> FloatArray:
    """Sum over the ranks before each one of a chunk's seconds and a send, shape (p,) or (p, B)."""
    chunk_s = seconds[:, chunk] if extra_s is None else seconds[:, chunk] + extra_s[:, chunk]
    before_s = np.zeros_like(chunk_s)
    np.cumsum(chunk_s[:-1] + np.asarray(send_s), axis=0, out=before_s[1:])
    return before_s


@lru_cache(maxsize=256)
def _fill_drain_counts(schedule: ScheduleName, p: int, v: int, m: int) -> FloatArray:
    """Operations by `durations.by_slot` on the two paths of every rank, shape (2, p, 4 p v)."""
    table = operation_table(schedule, p, v, m)
    slots = operation_slots(schedule, p, v, m)
    is_last, is_chunk_0 = table.micro_batch == m - 1, table.chunk == 0
    back_at = np.argmax((table.phase == Phase.BACKWARD) & (table.micro_batch == 0) & is_chunk_0, axis=1)
    last_at = np.argmax((table.phase == Phase.FORWARD) & is_last & is_chunk_0, axis=1)
    # Kinds of slot, see by_slot: with one micro-batch it is the first and the last.
    forward, backward, first_forward, last_backward = 0, 1, 2, 3
    back_of_0, down_of_last = (backward, forward) if m > 1 else (last_backward, first_forward)
    counts = np.zeros((2, p, 4, p, v))
    counts[0, :, first_forward] = 1
    counts[1, :, last_backward] = 1
    for rank in range(p):
        first, last = counts[0, rank], counts[1, rank]
        first[back_of_0] += 1
        last[down_of_last] += 1
        first[back_of_0, :rank, 0] -= 1
        first[last_backward, :rank, 0] += 1
        last[down_of_last, : rank + 1, 0] -= 1
        last[first_forward, :rank, 0] += 1
        first += _histogram(slots[rank, back_at[rank] + 1 :], first)
        last += _histogram(slots[rank, : last_at[rank] + 1], last)
    return counts.reshape(2, p, 4 * p * v)


def _histogram(slots: IntArray, like: FloatArray) -> FloatArray:
    return np.bincount(slots, minlength=like.size).astype(np.float64).reshape(like.shape)
