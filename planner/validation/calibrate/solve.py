"""The robust solve of a fit: a few dozen unknowns, in plain floats and a fixed order, the same on every machine."""

from collections.abc import Sequence
from typing import Final

Vector = list[float]

NOISE: Final = 0.06
"""Log error of a row that nothing explains: the same configuration differs by 5 to 6 % between releases."""

HUBER: Final = 1.0
"""Rows further off than so many times the noise pull no harder than at it (Huber 1964)."""

ROUNDS: Final = 40


def robust_solve(
    rows: Sequence[Sequence[float]], errors: Sequence[float], weights: Sequence[float], start: Sequence[float]
) -> Vector:
    """The x that minimises sum of w huber((e + J (x - start)) / noise) + |x|^2 / 2, by reweighting."""
    x = list(start)
    for _ in range(ROUNDS):
        matrix = [[1.0 if i == j else 0.0 for j in range(len(x))] for i in range(len(x))]
        right = [0.0] * len(x)
        for row, error, weight in zip(rows, errors, weights, strict=True):
            touched = [i for i, value in enumerate(row) if value]
            residual = error + sum(row[i] * (x[i] - start[i]) for i in touched)
            scaled = abs(residual) / NOISE
            pull = weight / NOISE**2 * (HUBER / scaled if scaled > HUBER else 1.0)
            aim = sum(row[i] * start[i] for i in touched) - error
            for i in touched:
                right[i] += pull * row[i] * aim
                for j in touched:
                    matrix[i][j] += pull * row[i] * row[j]
        x = _cholesky_solve(matrix, right)
    return x


def _cholesky_solve(matrix: list[Vector], right: Vector) -> Vector:
    """Solve a symmetric positive definite system."""
    size = len(right)
    lower = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            lower[i][j] = rest**0.5 if i == j else rest / lower[j][j]
    middle: Vector = []
    for i in range(size):
        middle.append((right[i] - sum(lower[i][k] * middle[k] for k in range(i))) / lower[i][i])
    found = [0.0] * size
    for i in reversed(range(size)):
        rest = middle[i] - sum(lower[k][i] * found[k] for k in range(i + 1, size))
        found[i] = rest / lower[i][i]
    return found
