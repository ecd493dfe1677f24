"""How many blocks a virtual stage may hold: the part of the declared space that concerns stage boundaries.

One chunk per rank: any number from 1. Several chunks per rank: within `SPREAD` of the even share, and on the first and
the last virtual stage, which also hold embedding, head and trained prediction layers, down to `EDGE_SPREAD` fewer.
Sizes further from even only turn interleaving into a slower 1F1B, whose meshes are in the space themselves.
"""

from functools import lru_cache

import numpy as np

from cost_models.chunk import Index

SPREAD = 1
EDGE_SPREAD = 4


@lru_cache(maxsize=4096)
def stage_window(num_blocks: int, pp: int, vpp: int) -> tuple[Index, Index]:
    """Least and most blocks of every virtual stage in global order, arrays (pp * vpp,)."""
    count = pp * vpp
    least = np.ones(count, dtype=np.int64)
    most = np.full(count, max(num_blocks - count + 1, 1), dtype=np.int64)
    if vpp > 1:
        least[:] = max(num_blocks // count - SPREAD, 1)
        least[[0, -1]] = max(num_blocks // count - EDGE_SPREAD, 1)
        most = np.minimum(most, -(-num_blocks // count) + SPREAD)
    return least, most
