"""Which stage of the model every (rank, chunk) of a schedule holds.

gpipe, 1f1b, zb-h1   stage = rank                       p stages
interleaved          stage = chunk p + rank             p v stages (Megatron-LM's interleaving)
zb-v, dualpipe-v     stage = rank, then 2 p - 1 - rank  2 p stages, a V: the last stage is on rank 0
dualpipe             stage = rank, and p - 1 - rank     p stages, each of them held by two ranks
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models.schedule.names import ScheduleName

_V_SHAPED = (ScheduleName.ZB_V, ScheduleName.DUALPIPE_V)


def stage_of(schedule: ScheduleName, p: int, rank: int, chunk: int) -> int:
    """Global stage that chunk number `chunk` of a rank holds, of p ranks."""
    if schedule in _V_SHAPED:
        return rank if chunk == 0 else 2 * p - 1 - rank
    if schedule is ScheduleName.DUALPIPE:
        return rank if chunk == 0 else p - 1 - rank
    return chunk * p + rank


def rank_of_stage(schedule: ScheduleName, p: int, stage: int, direction: int = 0) -> int:
    """Rank that holds a global stage; `direction` is the chunk number of dualpipe, which holds each stage twice."""
    if schedule in _V_SHAPED:
        return stage if stage < p else 2 * p - 1 - stage
    if schedule is ScheduleName.DUALPIPE:
        return stage if direction == 0 else p - 1 - stage
    return stage % p


def num_stages(schedule: ScheduleName, p: int, v: int) -> int:
    """Stages that the model is cut into: p v, but p where two chunks hold copies of the same stages."""
    return p if schedule is ScheduleName.DUALPIPE else p * v


@lru_cache(maxsize=256)
def stage_table(schedule: ScheduleName, p: int, v: int) -> NDArray[np.int64]:
    """`stage_of` for all ranks and chunks, shape (p, v), read-only."""
    rows = [[stage_of(schedule, p, rank, chunk) for chunk in range(v)] for rank in range(p)]
    table = np.asarray(rows, dtype=np.int64)
    table.flags.writeable = False
    return table
