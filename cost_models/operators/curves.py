"""Which measured curve a kernel belongs to: matrix work by its kind, traffic by the operator that moves it."""

from collections.abc import Sequence
from typing import Final

from cost_models.operators.base import Kernel, KernelKind, Operator

REST: Final = "|rest"
"""Ending of a kernel that runs beside another one of its operator and phase: a curve of the operator holds both."""

_VARIANTS: Final = ("kind", "function")


def curve_name(operator: Operator) -> str:
    """Family and variant of an operator: norm:rms, activation:silu:gated, cross_entropy."""
    family: str = getattr(operator, "family", "")
    parts = [family, *(str(getattr(operator, name)) for name in _VARIANTS if hasattr(operator, name))]
    return ":".join([*parts, "gated"] if getattr(operator, "gated", False) else parts)


def kernel_curves(operator: Operator, kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """The curve of each kernel of one operator; a phase of several kernels is timed as one by its traffic."""
    name = curve_name(operator)
    found = []
    for kernel in kernels:
        beside = [other for other in kernels if other.phase is kernel.phase]
        mixed = len({other.kind for other in beside}) > 1
        first = next((k for k in beside if k.kind is KernelKind.MEMORY), beside[0])
        if mixed:
            found.append(name if kernel is first else name + REST)
        else:
            found.append(name if kernel.kind is KernelKind.MEMORY else kernel.kind.value)
    return tuple(found)
