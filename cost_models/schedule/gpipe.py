"""GPipe in closed form: two waves of micro-batches through the ranks, exact for uneven ranks.

In a wave every rank handles m micro-batches in order, each after the rank before it did.  Its longest path
follows one micro-batch to some rank k, stays there for the other m - 1, and follows another one on; only one
of the micro-batches carries extras, so staying at more than one rank gains nothing.  A rank's first backward
never waits for its own forwards: the last micro-batch went from them to the last rank and came back later.
"""

import numpy as np

from cost_models.schedule.durations import FloatArray


def gpipe_rank_ends(m: int, slots: FloatArray, send: FloatArray) -> FloatArray:
    """End of every rank's last backward, shape (p, B), from `by_slot` durations (4, p, B) and send (B,).

    W(first .. rank p-1 forward) + W(rank i .. p-1 backward) + (2 (p - 1) - i) send, see `_wave`.
    """
    forward, backward, first_forward, last_backward = slots
    p = len(forward)
    forwards_end = _wave(m, forward, first_forward) + (p - 1) * send
    waves = [_wave(m, backward[rank:], last_backward[rank:]) + (p - 1 - rank) * send for rank in range(p)]
    return forwards_end + np.stack(waves)


def _wave(m: int, plain: FloatArray, special: FloatArray) -> FloatArray:
    """W = sum_j d_j + max_k (sum_{j<=k} x_j + (m - 1) d_k), x what one micro-batch costs above d."""
    if m == 1:
        return np.asarray(special.sum(axis=0))
    extras = np.cumsum(special - plain, axis=0)
    return np.asarray(plain.sum(axis=0) + (extras + (m - 1) * plain).max(axis=0))
