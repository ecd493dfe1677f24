"""The declared stage boundaries: every cut for one chunk per rank, a family of nearly even cuts for the others.

The others are several chunks per rank, models of more than 2,048 layers, and one chunk whose backward is split: bounds
on one path of a list, on which the rank program rests, hold for whole backwards only.

Interleaved pipelines are run with virtual stages of equal size, or nearly so. The declared cuts of L blocks into N
virtual stages are those with sizes q and q + 1, the longer ones in a row (from every place, around the end), and up to
two blocks fewer on the first and on the last virtual stage, which also hold the embedding and the head:

    q = (L + f + l) // N,  (L + f + l) mod N stages of q + 1,  first - f,  last - l,  f, l in 0..2

There are at most 9 N of them, so pricing all under every K is exact and takes milliseconds (chunk_cuts.py). The best
plan of a search is afterwards improved by moves of single blocks, which leave this family.
"""

from functools import lru_cache

import numpy as np

from cost_models.chunk import Index
from cost_models.schedule.names import ScheduleName

MOST_BLOCKS = 2048
"""Layers of the deepest model whose every cut is declared; a table of all segments of more would not fit in memory."""

MOST_FEWER = 2
"""Blocks by which the first and the last virtual stage may be shorter than their share."""


@lru_cache(maxsize=4096)
def declared_cuts(num_blocks: int, count: int) -> Index:
    """All declared cuts of `num_blocks` into `count` virtual stages, shape (n, N); none if blocks are too few."""
    places = np.arange(count)
    families: list[Index] = []
    for first in range(MOST_FEWER + 1):
        for last in range(MOST_FEWER + 1):
            base, extra = divmod(num_blocks + first + last, count)
            starts = places[: count if extra else 1, None]
            cuts = base + ((places - starts) % count < extra).astype(np.int64)
            cuts[:, 0] -= first
            cuts[:, -1] -= last
            families.append(cuts[cuts.min(axis=1) >= 1])
    distinct: Index = np.unique(np.concatenate(families), axis=0)
    return distinct


def takes_every_cut(schedule: ScheduleName, vpp: int, num_blocks: int) -> bool:
    """Whether every contiguous cut is declared."""
    return vpp == 1 and not schedule.splits_backward and num_blocks <= MOST_BLOCKS


@lru_cache(maxsize=4096)
def stage_window(num_blocks: int, count: int, *, every_cut: bool) -> tuple[Index, Index]:
    """Least and most blocks of every virtual stage in global order, arrays (count,)."""
    if not every_cut:
        cuts = declared_cuts(num_blocks, count)
        return cuts.min(axis=0), cuts.max(axis=0)
    return np.ones(count, dtype=np.int64), np.full(count, max(num_blocks - count + 1, 1), dtype=np.int64)
