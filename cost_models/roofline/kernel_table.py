"""Many kernels as arrays: one row a kernel, further axes the candidate layouts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.operators.base import Kernel, KernelKind, Phase
from cost_models.units import Num

_FIELDS: Final = ("flops", "bytes", "m", "n", "k", "count")
_KINDS: Final = tuple(KernelKind)

SMALLEST: Final = 1e-9
"""Stands for a dimension of 0 in a division; such a kernel has no work."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Consecutive rows that one formula prices: one kind, fp32 or not, for attention one direction."""

    kind: KernelKind
    fp32: bool
    backward: bool
    rows: slice


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels sorted into groups; arrays have shape (kernels, *batch); FLOP and bytes cover all `count`.

    `order[i]` is the position in the given list of sorted row i; `phases` follows the given list, as results
    do.
    """

    flops: NDArray[np.float64]
    bytes: NDArray[np.float64]
    m: NDArray[np.float64]
    n: NDArray[np.float64]
    k: NDArray[np.float64]
    count: NDArray[np.float64]
    order: NDArray[np.intp]
    phases: NDArray[np.intp]
    groups: tuple[RowGroup, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """(kernels, *batch)."""
        return self.flops.shape


def stack_kernels(kernels: Sequence[Kernel]) -> KernelTable:
    """Kernels whose fields are scalars or arrays over candidates, broadcast into one table."""
    batch = np.broadcast_shapes(*{_shape(getattr(one, field)) for one in kernels for field in _FIELDS})
    order = sorted(range(len(kernels)), key=lambda i: _group_key(kernels[i]))
    columns = {field: np.empty((len(kernels), *batch)) for field in _FIELDS}
    for row, position in enumerate(order):
        for field, column in columns.items():
            column[row] = getattr(kernels[position], field)
    for name in ("m", "n", "k"):
        np.maximum(columns[name], SMALLEST, out=columns[name])
    return KernelTable(
        **columns,
        order=np.array(order, dtype=np.intp),
        phases=np.array([int(one.phase) for one in kernels], dtype=np.intp),
        groups=_groups([kernels[i] for i in order]),
    )


def _shape(value: Num) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


def _group_key(kernel: Kernel) -> tuple[int, bool, bool]:
    backward = kernel.kind is KernelKind.ATTENTION and kernel.phase is not Phase.FORWARD
    return _KINDS.index(kernel.kind), kernel.fp32, backward


def _groups(kernels: list[Kernel]) -> tuple[RowGroup, ...]:
    groups: list[RowGroup] = []
    start = 0
    for row, kernel in enumerate(kernels):
        last = row + 1 == len(kernels)
        if last or _group_key(kernels[row + 1]) != _group_key(kernel):
            backward = _group_key(kernel)[2]
            groups.append(RowGroup(kernel.kind, kernel.fp32, backward, slice(start, row + 1)))
            start = row + 1
    return tuple(groups)
