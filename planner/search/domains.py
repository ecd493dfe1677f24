"""Where the boundaries of virtual stages may lie (v > 1), and how recomputed blocks follow them."""

from dataclasses import dataclass

from cost_models.chunk import MeshCosts
from planner.search.problem import num_virtual_stages


@dataclass(frozen=True, slots=True)
class Domains:
    """Inclusive ranges of x[g] (N + 1 of them) and the rule of s[g].

    `full` is K when it is fixed for all virtual stages: s[g] = min(x[g] + K, x[g+1]); None lets every virtual
    stage choose, x[g] <= s[g] <= x[g+1].
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    full: int | None

    @classmethod
    def of(cls, mesh: MeshCosts, full: int | None) -> "Domains":
        """Every virtual stage has a block; all have the same number when the engine takes only that."""
        count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
        stages = range(count + 1)
        if mesh.uniform_chunks:
            fixed = tuple(stage * (num_blocks // count) for stage in stages)
            return cls(fixed, fixed, full)
        inner = range(1, count)
        low = (0, *inner, num_blocks)
        high = (0, *(num_blocks - count + stage for stage in inner), num_blocks)
        return cls(low, high, full)

    @property
    def splits(self) -> bool:
        """Whether s[g] differs from x[g], so that rows depend on it."""
        return self.full != 0

    @property
    def most_full(self) -> int:
        """The most blocks that any virtual stage recomputes in full."""
        return self.high[-1] if self.full is None else self.full
