"""One chunk per rank, few cuts left: simulate all of them.

The rank program gives every (rank, segment) the least bound of the cuts that use it. Segments at the target or above
are out; what is left is a layered graph whose paths are the cuts that could still win. Counting paths is cheap, and
where there are few, pricing every one is exact and faster than any solver: the step of the best is the optimum.
"""

import numpy as np

from cost_models.chunk import Index, MeshCosts
from planner.search.bounding.path_pool import PathPool
from planner.search.greedy import FEW_CUTS, FullRule
from planner.search.problem import InnerSolution, chunks_of, of_choices, price_many, step_of, steps_of
from planner.search.rank_program import RankProgram

MOST_CUTS = 40_000
"""Cuts that are simulated at most; about a second."""

_TOGETHER = 4096
_PATHS = 12
"""Longest paths that are looked for before cuts are simulated."""


def best_of_few(
    mesh: MeshCosts, program: RankProgram, rule: FullRule, target_s: float, paths: PathPool
) -> tuple[bool, InnerSolution | None]:
    """Whether there are few enough cuts below `target_s` (pipeline and tail), and the best of them that fits."""
    cuts = cuts_below(mesh, program, target_s)
    if cuts is None:
        return False, None
    best: InnerSolution | None = None
    cuts = _below_paths(mesh, cuts, rule, step_of(mesh, target_s), paths)
    for start in range(0, len(cuts), _TOGETHER):
        stages = cuts[start : start + _TOGETHER]
        full_layers = rule(stages)
        prices = price_many(mesh, stages, full_layers)
        steps = np.where(prices.excess_bytes <= 0.0, prices.step_s, np.inf)
        first = int(np.argmin(steps))
        if steps[first] < (np.inf if best is None else best.step_s):
            cut, full = tuple(stages[first].tolist()), tuple(full_layers[first].tolist())
            best = InnerSolution(cut, full, float(steps[first]))
    return True, best


def _below_paths(mesh: MeshCosts, cuts: Index, rule: FullRule, target_s: float, paths: PathPool) -> Index:
    """Cuts that known paths and the longest ones of a few of them do not put at the target step; in their order."""
    chunks = chunks_of(mesh, cuts, rule(cuts))
    least_s = steps_of(mesh, paths.bounds(mesh, chunks))
    near = least_s < target_s
    cuts, chunks, least_s = cuts[near], of_choices(chunks, near), least_s[near]
    for _ in range(_PATHS):
        if len(cuts) < FEW_CUTS:
            break
        paths.learn(mesh, chunks, int(np.argmin(least_s)))
        least_s = np.maximum(least_s, steps_of(mesh, paths.bounds(mesh, chunks, only_last=True)))
        near = least_s < target_s
        cuts, chunks, least_s = cuts[near], of_choices(chunks, near), least_s[near]
    return cuts


def cuts_below(mesh: MeshCosts, program: RankProgram, target_s: float) -> Index | None:
    """All cuts (n, p) whose every segment has a bound below the target; None when there are too many."""
    if program.outside_s < target_s:
        return None
    num_blocks = mesh.table.num_blocks
    segments = [_segments(through_s, target_s) for through_s in program.through_s]
    if _count(segments, num_blocks) > MOST_CUTS:
        return None
    cuts: list[list[int]] = [[]]
    ends = [0]
    for by_start in segments:
        grown = [
            (cut, end, size) for cut, end in zip(cuts, ends, strict=True) for size in by_start.get(end, ())
        ]
        cuts, ends = [[*cut, size] for cut, _, size in grown], [end + size for _, end, size in grown]
        if len(cuts) > 4 * MOST_CUTS:  # dead ends can outnumber the cuts
            return None
    whole = [cut for cut, end in zip(cuts, ends, strict=True) if end == num_blocks]
    return np.asarray(whole, dtype=np.int64).reshape(len(whole), mesh.pp)


def _segments(through_s: np.ndarray, target_s: float) -> dict[int, list[int]]:
    """Sizes of the segments below the target, by where they start."""
    found: dict[int, list[int]] = {}
    stops, columns = np.nonzero(through_s < target_s)
    for stop, column in zip(stops.tolist(), columns.tolist(), strict=True):
        found.setdefault(stop - column - 1, []).append(column + 1)
    return found


def _count(segments: list[dict[int, list[int]]], num_blocks: int) -> int:
    """Number of paths from block 0 to the end, one segment a rank."""
    ways = {0: 1}
    for by_start in segments:
        reached: dict[int, int] = {}
        for at, count in ways.items():
            for size in by_start.get(at, ()):
                reached[at + size] = reached.get(at + size, 0) + count
        ways = reached
    return ways.get(num_blocks, 0)
