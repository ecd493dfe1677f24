"""Values at several lengths -> the polynomial that goes through all of them, in exact fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from cost_models.operators.traced import Growth

TOLERANCE: Final = 1e-9
"""Largest miss, of the largest value, that still counts as through."""


class Fits:
    """Polynomials through the values at some lengths; `exact` says whether each went through all of them."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self.exact = True

    def growth(self, values: Sequence[float], *, essential: bool = True) -> Growth:
        """Constant, linear and quadratic part; where they do not fit, in proportion to the longest."""
        points = list(zip(self._lengths, values, strict=True))
        found = _through(points[-3:])
        miss = max(abs(float(found.at(length)) - value) for length, value in points)
        if miss <= TOLERANCE * max(abs(value) for value in (*values, 1.0)):
            return found
        if essential:
            self.exact = False
        return Growth(linear=values[-1] / self._lengths[-1])


def _through(points: Sequence[tuple[int, float]]) -> Growth:
    """Newton's polynomial in exact fractions."""
    xs = [Fraction(x) for x, _ in points]
    table = [Fraction(y) for _, y in points]
    for order in range(1, len(xs)):
        for i in range(len(xs) - 1, order - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (xs[i] - xs[i - order])
    table += [Fraction(0)] * (3 - len(table))
    first, slope, bend = table[:3]
    x0 = xs[0]
    x1 = xs[1] if len(xs) > 1 else Fraction(0)
    return Growth(
        constant=float(first - slope * x0 + bend * x0 * x1),
        linear=float(slope - bend * (x0 + x1)),
        quadratic=float(bend),
    )
