"""Curves of a device's own profile, before every formula: which one prices a kernel, and how far it reaches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.operators.base import KernelKind, Phase
from cost_models.profiles import MeasuredProfile, Point
from cost_models.profiles.curves import Columns, Curve, curve_of_points

Array = NDArray[np.float64]

COPY: Final = "copy"
"""The curve of a plain copy: for traffic that has none of its own."""
OPTIMIZER: Final = "optimizer"

_PRODUCTS: Final = frozenset({KernelKind.GEMM.value, KernelKind.GROUPED_GEMM.value})
_FORWARD: Final = "forward"
ACCUMULATE: Final = "accumulate"
"""Adding a gradient to the one before."""


@dataclass(frozen=True, slots=True)
class MeasuredKernels:
    """Curves of a device by (curve, phase, precision); `stretch` multiplies all seconds: processes on each core of a
    host that has fewer of them than there are processes."""

    profile: str
    curves: Mapping[tuple[str, str, str], Curve]
    stretch: float = 1.0
    complete: bool = True

    def curve_of(self, family: str, kind: KernelKind, phase: str, precision: str) -> Curve | None:
        """The curve of a kernel: its own, one of its family, a copy's for traffic without one; traffic is told by its
        bytes, so a curve of another precision stands in where its own was not measured."""
        if kind is not KernelKind.MEMORY:
            own = self.curves.get((kind.value, phase, precision))
            same = kind.value in _PRODUCTS  # a product costs what it costs, whose gradient it is
            return own or (self.curves.get((kind.value, _FORWARD, precision)) if same else None)
        return self._first(family, phase, precision) or self.traffic_of(COPY)

    def traffic_of(self, name: str) -> Curve | None:
        """The curve of traffic outside kernels: the optimizer's step, sums of gradients, copies."""
        found = [curve for (own, _, _), curve in self.curves.items() if own == name]
        return found[0] if found else None

    def _first(self, family: str, phase: str, precision: str) -> Curve | None:
        """The nearest curve of a family: of this variant before others, of this precision before others."""
        base = family.partition(":")[0]
        near = [key for key in self.curves if key[1] == phase and key[0].partition(":")[0] == base]
        near.sort(key=lambda key: (key[0] != family, key[2] != precision, key))
        return self.curves[near[0]] if near else None

    def at_rate(self, ratio: float) -> "MeasuredKernels":
        """The same kernels at `ratio` times their rate."""
        return self if ratio == 1.0 else replace(self, stretch=self.stretch / ratio)

    def seconds(self, curve: Curve, columns: Columns) -> Array:
        """Seconds of all launches together."""
        return curve.at(columns) * self.stretch


def measured_kernels(
    profile: MeasuredProfile | None, processes: int = 1, cores: int = 1
) -> MeasuredKernels | None:
    """The curves of a profile for so many processes on so many cores (1 and 1 on an accelerator).

    A host's kernels are measured alone and with every core at work; more processes than cores take turns.
    """
    if profile is None:
        return None
    kernels = profile.of("kernel")
    known = sorted({point.processes for point in kernels})
    if not known:
        return None
    busy = min(processes, cores)
    used = min(known, key=lambda count: abs(np.log(count / busy)))
    groups: dict[tuple[str, str, str], list[Point]] = {}
    for point in kernels:
        if point.processes == used:
            groups.setdefault((point.name, point.phase, point.precision), []).append(point)
    for name, phase, precision in list(groups):
        if name in _PRODUCTS and phase != _FORWARD:
            groups[name, phase, precision] += _of_other_shapes(groups, (name, phase, precision))
    curves = {key: curve for key, points in groups.items() if (curve := curve_of_points(points)) is not None}
    stretch = (busy / used) * max(1.0, processes / cores)
    return MeasuredKernels(profile.title, curves, stretch, profile.manifest.complete)


def _of_other_shapes(
    groups: Mapping[tuple[str, str, str], list[Point]], key: tuple[str, str, str]
) -> list[Point]:
    """Forward products of shapes that a gradient was not measured in: the same work, laid out otherwise."""
    name, _, precision = key

    def shape(point: Point) -> tuple[float, ...]:
        return tuple(point.features.get(size, 0.0) for size in ("count", "m", "n", "k"))

    known = {shape(point) for point in groups[key]}
    return [point for point in groups.get((name, _FORWARD, precision), []) if shape(point) not in known]


def phase_name(phase: Phase) -> str:
    """forward, input_gradient or weight_gradient."""
    return phase.name.lower()
