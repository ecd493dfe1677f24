"""Monotone curves through measured points: what a kernel or a message of any size takes.

A curve of several sizes is a sum of non-negative terms, t = sum c_j x_j (a launch, FLOP, the bytes of every side),
fitted to relative errors, then held between what the measured points allow: at least as long as every smaller point, at
most as long as every larger one. At a measured point that is the measured time. A curve of one size (bytes) is
straight between its points in the logarithms. Both grow with every size; beyond the points the terms, or time in
proportion to bytes, go on, and `outside` tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.operators.base import KernelKind
from cost_models.profiles.measured import Point
from cost_models.units import Num

Array = NDArray[np.float64]
Columns = Mapping[str, Array]

SIZES: Final[Mapping[KernelKind, tuple[str, ...]]] = {
    KernelKind.GEMM: ("count", "m", "n", "k"),
    KernelKind.GROUPED_GEMM: ("count", "m", "n", "k"),
    KernelKind.ATTENTION: ("pairs", "k", "bytes"),
    KernelKind.CONVOLUTION: ("flops", "bytes"),
    KernelKind.SCAN: ("flops", "bytes"),
    KernelKind.MEMORY: ("bytes",),
}
"""What a kernel's time grows with; `pairs` are FLOP over the head size: attended query-key pairs."""

SMALLEST: Final = 1e-12
ROUNDS: Final = 400
REACH: Final = 1.05
"""Sizes so much beyond the largest measured one, or below the smallest, still count as measured."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One kernel in one phase and precision: P points of D sizes, their times made monotone, the terms' weights."""

    sizes: tuple[str, ...]
    points: Array  # (P, D)
    seconds: Array  # (P,)
    weights: Array  # (terms,)
    noise: float  # median half width of the points' intervals, over their middle

    def at(self, columns: Columns) -> Array:
        """Seconds where the sizes stand in `columns`, of any one shape."""
        query = [np.maximum(columns[name], SMALLEST) for name in self.sizes]
        if len(self.sizes) == 1:
            return self._along(query[0])
        base = sum(
            (weight * term for weight, term in zip(self.weights, _terms(self.sizes, query), strict=True)),
            start=np.zeros_like(query[0]),
        )
        lower, upper = self._bounds(query)
        found: Array = np.minimum(np.maximum(base, lower), upper)
        return found

    def outside(self, columns: Columns) -> NDArray[np.bool_]:
        """Where a size lies beyond the measured ones."""
        beyond = np.zeros(np.shape(columns[self.sizes[0]]), dtype=bool)
        for index, name in enumerate(self.sizes):
            column, known = columns[name], self.points[:, index]
            beyond |= (column > known.max() * REACH) | (column < known.min() / REACH)
        return beyond

    def _along(self, size: Array) -> Array:
        """Straight in the logarithms between points; beyond the last in proportion, before the first constant."""
        known = self.points[:, 0]
        inside: Array = np.exp(np.interp(np.log(size), np.log(known), np.log(self.seconds)))
        return np.where(size > known[-1], self.seconds[-1] * size / known[-1], inside)

    def _bounds(self, query: Sequence[Array]) -> tuple[Array, Array]:
        """The longest of the smaller points and the shortest of the larger ones."""
        lower, upper = np.zeros_like(query[0]), np.full_like(query[0], np.inf)
        for point, seconds in zip(self.points, self.seconds, strict=True):
            above = np.ones(query[0].shape, dtype=bool)
            below = np.ones(query[0].shape, dtype=bool)
            for size, known in zip(query, point, strict=True):
                above &= size >= known
                below &= size <= known
            np.maximum(lower, seconds, where=above, out=lower)
            np.minimum(upper, seconds, where=below, out=upper)
        return lower, upper


def curve_of_points(points: Sequence[Point]) -> Curve | None:
    """The monotone curve through points of one kernel; None where there is no size to tell them by."""
    kind = _kind_of(points[0].name)
    sizes = SIZES[kind]
    merged: dict[tuple[float, ...], list[float]] = {}
    for point in points:
        row = _row(point, sizes)
        if min(row) > 0.0 and point.seconds > 0.0:
            merged.setdefault(row, []).append(point.seconds)
    if not merged:
        return None
    keys = sorted(merged)
    table = np.array(keys, dtype=float)
    seconds = _isotonic(table, np.array([float(np.median(merged[key])) for key in keys]))
    weights = _fit(_terms(sizes, list(table.T)), seconds) if len(sizes) > 1 else np.zeros(0)
    noise = float(np.median([point.half_width for point in points]))
    return Curve(sizes, table, seconds, weights, noise)


def columns_of(flops: Num, moved: Num, shape: Mapping[str, Num]) -> dict[str, Array]:
    """What curves ask of kernels: their sizes by name, broadcast to one shape."""
    k = np.maximum(np.asarray(shape["k"], dtype=float), SMALLEST)
    values = {"flops": flops, "bytes": moved, **shape, "pairs": np.asarray(flops) / k}
    names = tuple(values)
    broadcast = np.broadcast_arrays(*(np.asarray(values[name], dtype=float) for name in names))
    return dict(zip(names, broadcast, strict=True))


def _kind_of(name: str) -> KernelKind:
    """Matrix work has one curve a kind; everything else is traffic."""
    kinds = {kind.value: kind for kind in KernelKind}
    return kinds.get(name, KernelKind.MEMORY)


def _row(point: Point, sizes: tuple[str, ...]) -> tuple[float, ...]:
    """The sizes of a point; 0 where it does not state one."""
    features = point.features
    columns = columns_of(
        features.get("flops", 0.0),
        features.get("bytes", 0.0),
        {name: features.get(name, 0.0) for name in ("m", "n", "k", "count")},
    )
    return tuple(float(columns[name]) for name in sizes)


def _terms(sizes: tuple[str, ...], values: Sequence[Array]) -> list[Array]:
    """Terms that a time is a sum of: a launch, the work, and the traffic of every operand."""
    if sizes == SIZES[KernelKind.GEMM]:
        count, m, n, k = values
        return [np.ones_like(m), count, count * m * n * k, count * m * n, count * m * k, count * n * k]
    if sizes == SIZES[KernelKind.ATTENTION]:
        pairs, k, moved = values
        return [np.ones_like(k), pairs * k, pairs, moved]
    return [np.ones_like(values[0]), *values]


def _isotonic(points: Array, seconds: Array) -> Array:
    """The monotone times nearest to the measured ones in the worst case of the logarithms: the middle between the
    longest time of the smaller points and the shortest of the larger ones."""
    logs = np.log(seconds)
    smaller = np.all(points[:, None, :] >= points[None, :, :], axis=2)  # [i, j]: j is at most as large as i
    longest = np.where(smaller, logs[None, :], -np.inf).max(axis=1)
    shortest = np.where(smaller.T, logs[None, :], np.inf).min(axis=1)
    return np.asarray(np.exp(0.5 * (longest + shortest)))


def _fit(terms: Sequence[Array], seconds: Array) -> Array:
    """Non-negative weights with the least squares of relative errors, by descent along one weight at a time."""
    table = np.stack([term / seconds for term in terms], axis=1)
    scale = np.maximum(np.sqrt((table**2).sum(axis=0)), SMALLEST**2)
    table = table / scale
    square, right = table.T @ table, table.sum(axis=0)
    weights = np.zeros(len(terms))
    for _ in range(ROUNDS):
        for j in range(len(terms)):
            rest = right[j] - square[j] @ weights + square[j, j] * weights[j]
            weights[j] = max(0.0, rest / square[j, j]) if square[j, j] > 0.0 else 0.0
    return np.asarray(weights / scale)
