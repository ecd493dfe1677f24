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
    """Consecutive rows that one formula prices: one kind, fp32 or not, for attention one direction.

    Where the device was measured also one curve (`curve`, empty elsewhere) in one phase. `minimal` marks convolutions
    that minimal filtering can compute.
    """

    kind: KernelKind
    fp32: bool
    backward: bool
    rows: slice
    curve: str = ""
    phase: Phase = Phase.FORWARD
    minimal: bool = False


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


def stack_kernels(kernels: Sequence[Kernel], curves: Sequence[str] = ()) -> KernelTable:
    """Kernels whose fields are scalars or arrays over candidates, broadcast into one table.

    `curves` names the measured curve of each, where the device has a profile.
    """
    named = tuple(curves) or ("",) * len(kernels)
    keys = [_group_key(kernel, curve) for kernel, curve in zip(kernels, named, strict=True)]
    batch = np.broadcast_shapes(*{_shape(getattr(one, field)) for one in kernels for field in _FIELDS})
    order = sorted(range(len(kernels)), key=lambda i: keys[i])
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
        groups=_groups([keys[i] for i in order]),
    )


def _shape(value: Num) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


_Key = tuple[int, bool, bool, str, int, bool]


def _group_key(kernel: Kernel, curve: str) -> _Key:
    backward = kernel.kind is KernelKind.ATTENTION and kernel.phase is not Phase.FORWARD
    phase = int(kernel.phase) if curve else 0
    return _KINDS.index(kernel.kind), kernel.fp32, backward, curve, phase, kernel.minimal


def _groups(keys: list[_Key]) -> tuple[RowGroup, ...]:
    groups: list[RowGroup] = []
    start = 0
    for row, key in enumerate(keys):
        if row + 1 == len(keys) or keys[row + 1] != key:
            kind, fp32, backward, curve, phase, minimal = key
            rows = slice(start, row + 1)
            groups.append(RowGroup(_KINDS[kind], fp32, backward, rows, curve, Phase(phase), minimal))
            start = row + 1
    return tuple(groups)
