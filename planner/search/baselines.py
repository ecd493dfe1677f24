"""Plain answers to the inner problem: every choice priced, and the even split that people use without a search."""

from collections.abc import Iterator
from itertools import combinations, pairwise, product

import numpy as np

from cost_models.chunk import Index, MeshCosts
from planner.search.problem import InnerSolution, num_virtual_stages, price_many

# Choices priced in one batch; bounds the memory of an exhaustive search.
_BATCH = 4096


def solve_exhaustively(mesh: MeshCosts) -> InnerSolution | None:
    """The best choice of all, None when nothing fits; for small cases, (L - 1 over N - 1) partitions are priced."""
    best: InnerSolution | None = None
    for stages, full_layers in _batches(_choices(mesh)):
        prices = price_many(mesh, stages, full_layers)
        steps = np.where(prices.fits, prices.step_s, np.inf)
        first = int(np.argmin(steps))
        if steps[first] < (np.inf if best is None else best.step_s):
            best = InnerSolution(
                tuple(stages[first].tolist()), tuple(full_layers[first].tolist()), float(steps[first])
            )
    return best


def even_stages(mesh: MeshCosts) -> tuple[int, ...] | None:
    """As equal as possible, the longer stages first but not on the edges; None with fewer blocks than stages."""
    count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
    if count > num_blocks or (mesh.uniform_chunks and num_blocks % count):
        return None
    base, extra = divmod(num_blocks, count)
    inner = [*range(1, count - 1), 0, count - 1]
    longer = set(inner[:extra])
    return tuple(base + (stage in longer) for stage in range(count))


def partitions(num_blocks: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut `num_blocks` into `count` runs of at least one block."""
    for cuts in combinations(range(1, num_blocks), count - 1):
        bounds = (0, *cuts, num_blocks)
        yield tuple(stop - start for start, stop in pairwise(bounds))


def _choices(mesh: MeshCosts) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
    if count > num_blocks:
        return
    for stages in partitions(num_blocks, count):
        if mesh.uniform_chunks and len(set(stages)) > 1:
            continue
        if mesh.uniform_full:
            for full in range(mesh.least_full, max(stages) + 1):
                yield stages, tuple(min(full, blocks) for blocks in stages)
        else:
            for per_stage in product(*(range(blocks + 1) for blocks in stages)):
                yield stages, per_stage


def _batches(choices: Iterator[tuple[tuple[int, ...], tuple[int, ...]]]) -> Iterator[tuple[Index, Index]]:
    stages, full_layers = [], []
    for cut, full in choices:
        stages.append(cut)
        full_layers.append(full)
        if len(stages) == _BATCH:
            yield np.asarray(stages), np.asarray(full_layers)
            stages, full_layers = [], []
    if stages:
        yield np.asarray(stages), np.asarray(full_layers)
