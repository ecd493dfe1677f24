"""Where the boundaries of virtual stages may lie (v > 1), and how recomputed blocks follow them."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Index, MeshCosts
from planner.search.problem import num_virtual_stages, stage_limits


@dataclass(frozen=True, slots=True)
class Domains:
    """Inclusive ranges of x[g] (N + 1 of them) and the rule of s[g].

    `full` is K when it is fixed for all virtual stages: s[g] = min(x[g] + K, x[g+1]); None lets every virtual
    stage choose, x[g] <= s[g] <= x[g+1].
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    full: int | None
    least: tuple[int, ...]  # blocks of every virtual stage
    most: tuple[int, ...]

    @classmethod
    def of(cls, mesh: MeshCosts, full: int | None) -> "Domains":
        """Every virtual stage has a block; all have the same number when the engine takes only that."""
        count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
        stages = range(count + 1)
        if mesh.uniform_chunks:
            fixed = tuple(stage * (num_blocks // count) for stage in stages)
            sizes = (num_blocks // count,) * count
            return cls(fixed, fixed, full, sizes, sizes)
        least, most = stage_limits(mesh)
        low = np.maximum(_before(least), num_blocks - most.sum() + _before(most))
        high = np.minimum(_before(most), num_blocks - least.sum() + _before(least))
        return cls(
            tuple(low.tolist()), tuple(high.tolist()), full, tuple(least.tolist()), tuple(most.tolist())
        )

    @property
    def splits(self) -> bool:
        """Whether s[g] differs from x[g], so that rows depend on it."""
        return self.full != 0

    @property
    def most_full(self) -> int:
        """The most blocks that any virtual stage recomputes in full."""
        return self.high[-1] if self.full is None else self.full


def _before(sizes: Index) -> Index:
    """Blocks before each boundary when the stages have these sizes, shape (N + 1,)."""
    return np.concatenate(([0], np.cumsum(sizes)))
