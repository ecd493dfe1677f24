"""The sizes that a measured kernel is stored under: those that the cost model counts for the same operator."""

from collections.abc import Mapping

from cost_models.operators.base import Kernel, KernelKind, Operator, Phase, Shard, Style
from cost_models.operators.curves import REST, kernel_curves
from cost_models.profiles.measured import Point
from cost_models.roofline.measured import phase_name

FIELDS = ("flops", "bytes", "m", "n", "k", "count")


def operator_points(
    operator: Operator, at: Shard, style: Style, precision: str, processes: int = 1
) -> Mapping[Phase, Point]:
    """The point of each phase of an operator, its time still open; a phase without a kernel has none."""
    kernels = operator.kernels(at, style)
    found: dict[Phase, Point] = {}
    for kernel, curve in zip(kernels, kernel_curves(operator, kernels), strict=True):
        if curve.endswith(REST) or kernel.phase in found:
            continue
        used = "fp32" if kernel.fp32 and kernel.kind is not KernelKind.MEMORY else precision
        found[kernel.phase] = Point(
            kind="kernel",
            name=curve,
            phase=phase_name(kernel.phase),
            precision=used,
            processes=processes,
            features=kernel_features(kernel),
        )
    return found


def kernel_features(kernel: Kernel) -> dict[str, float]:
    """Sizes above 0 of a kernel that was counted at one shard point."""
    values = {name: float(getattr(kernel, name)) for name in FIELDS}
    return {name: value for name, value in values.items() if value > 0.0}


def product_features(m: int, n: int, k: int, count: int = 1, element_bytes: float = 4.0) -> dict[str, float]:
    """Sizes of `count` equal products of m x k and k x n matrices."""
    moved = (m * k + k * n + m * n) * element_bytes * count
    return {
        "flops": 2.0 * m * n * k * count,
        "bytes": moved,
        "m": float(m),
        "n": float(n),
        "k": float(k),
        "count": float(count),
    }
