"""The robust solve of a fit: a few dozen unknowns, in plain floats and a fixed order, the same on every machine."""

import math
from collections.abc import Sequence
from typing import Final

Vector = list[float]

NOISE: Final = 0.06
"""Log error of a row that nothing explains: the same configuration differs by 5 to 6 % between releases."""

HUBER: Final = 1.0
"""Rows further off than so many times the noise pull no harder than at it (Huber 1964)."""

ROUNDS: Final = 40


def robust_solve(
    rows: Sequence[Vector], errors: Sequence[float], weights: Sequence[float], start: Vector
) -> Vector:
    """The x that minimises sum of w huber((e + J (x - start)) / noise) + |x|^2 / 2, by reweighting."""
    x = list(start)
    for _ in range(ROUNDS):
        matrix = _identity(len(x))
        right = [0.0] * len(x)
        for row, error, weight in zip(rows, errors, weights, strict=True):
            touched = [i for i, value in enumerate(row) if value]
            pull = pull_of(row, error, weight, x, start)
            aim = sum(row[i] * start[i] for i in touched) - error
            for i in touched:
                right[i] += pull * row[i] * aim
                for j in touched:
                    matrix[i][j] += pull * row[i] * row[j]
        x = _cholesky_solve(matrix, right)
    return x


def pull_of(row: Vector, error: float, weight: float, x: Vector, start: Vector) -> float:
    """The weight of a row at x, over the square of the noise: less where it is far off."""
    residual = error + sum(value * (x[i] - start[i]) for i, value in enumerate(row) if value)
    scaled = abs(residual) / NOISE
    return weight / NOISE**2 * (HUBER / scaled if scaled > HUBER else 1.0)


def precision_root(rows: Sequence[Vector], pulls: Sequence[float], size: int) -> list[Vector]:
    """Lower factor L of the precision I + sum of pull J J^T of the constants after these rows were seen."""
    matrix = _identity(size)
    for row, pull in zip(rows, pulls, strict=True):
        touched = [i for i, value in enumerate(row) if value]
        for i in touched:
            for j in touched:
                matrix[i][j] += pull * row[i] * row[j]
    return _cholesky(matrix)


def deviation(root: Sequence[Sequence[float]], slopes: Sequence[float]) -> float:
    """Standard deviation of slopes times the constants: |L^-1 slopes|."""
    return math.sqrt(sum(value * value for value in _forward(root, slopes)))


def _identity(size: int) -> list[Vector]:
    return [[1.0 if i == j else 0.0 for j in range(size)] for i in range(size)]


def _cholesky(matrix: Sequence[Vector]) -> list[Vector]:
    size = len(matrix)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = rest**0.5 if i == j else rest / lower[j][j]
    return lower


def _forward(lower: Sequence[Sequence[float]], right: Sequence[float]) -> Vector:
    """L^-1 right."""
    found: Vector = []
    for i in range(len(right)):
        found.append((right[i] - sum(lower[i][k] * found[k] for k in range(i))) / lower[i][i])
    return found


def _cholesky_solve(matrix: Sequence[Vector], right: Vector) -> Vector:
    """Solve a symmetric positive definite system."""
    size = len(right)
    lower = _cholesky(matrix)
    middle = _forward(lower, right)
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = middle[i] - sum(lower[k][i] * found[k] for k in range(i + 1, size))
        found[i] = rest / lower[i][i]
    return found
