"""Bundles in the order of their bounds, which may rise while they wait."""

import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import Int
from planner.search.space.bundles import Bundle, BundlePricer, Bundles

TOGETHER = 16
"""Bundles that are priced in one go."""


@dataclass(slots=True)
class BundleQueue:
    """Bundles, the lowest bound first; they are priced when the first of them is at hand."""

    bundles: Bundles
    pricer: BundlePricer
    _next: int = 0
    _heap: list[tuple[float, int, Bundle]] = field(default_factory=list)
    _number: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def _ahead_s(self) -> float:
        """Bound of the first bundle that is not priced."""
        return float(self.bundles.bound_s[self._next]) if self._next < self.bundles.size else np.inf

    @property
    def least_s(self) -> float:
        """The least bound, infinite where none is left."""
        return min(self._ahead_s, self._heap[0][0] if self._heap else np.inf)

    def push(self, bundle: Bundle) -> None:
        """Put a bundle in its place."""
        heapq.heappush(self._heap, (bundle.bound_s, next(self._number), bundle))

    def pop(self) -> Bundle | None:
        """The lowest bundle; None where more had to be priced first."""
        if self._heap and self._heap[0][0] < self._ahead_s:
            return heapq.heappop(self._heap)[2]
        some = np.arange(self._next, min(self._next + TOGETHER, self.bundles.size))
        for bundle in self.pricer.block(self.bundles.take(some)):
            self.push(bundle)
        self._next += some.size
        return None

    def priced(self) -> list[Bundle]:
        """The bundles that were priced and are left, rising."""
        return [bundle for _, _, bundle in sorted(self._heap, key=lambda item: item[:2])]

    def unpriced(self, most: int) -> Bundles:
        """The first bundles that were never priced."""
        return self.bundles.take(np.arange(self._next, min(self._next + most, self.bundles.size)))

    def rest(self) -> tuple[Array, Int]:
        """Bounds of all that is left, and how many meshes each of them stands for."""
        left = self.bundles.take(np.arange(self._next, self.bundles.size))
        bounds = [bound_s for bound_s, _, _ in self._heap]
        sizes = np.asarray([len(bundle.members) for _, _, bundle in self._heap], dtype=np.int64)
        return np.concatenate((np.asarray(bounds), left.bound_s)), np.concatenate((sizes, left.stands_for))
