"""Maxima over many ranges of one array."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class RangeMax:
    """Sparse table: the maximum of a[start:stop] for many pairs in O(1) each; empty ranges give -inf."""

    def __init__(self, values: Array) -> None:
        self._levels = [values]
        width = 1
        while 2 * width <= values.shape[0]:
            last = self._levels[-1]
            self._levels.append(np.maximum(last[:-width], last[width:]))
            width *= 2

    def query(self, start: Index, stop: Index) -> Array:
        """Maxima over [start, stop)."""
        length = stop - start
        result = np.full(length.shape, -np.inf)
        level = np.floor(np.log2(np.maximum(length, 1))).astype(np.int64)
        for k, values in enumerate(self._levels):
            here = (level == k) & (length > 0)
            if here.any():
                left, right = start[here], stop[here] - (1 << k)
                result[here] = np.maximum(values[left], values[right])
        return result
