"""How far tensors of two runs are apart: each tensor's largest difference over its largest element."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

SMALL: Final = 1e-4
"""A gradient whose largest element is below this share of the largest of all is compared with that share instead of
with itself: there the others' rounding begins."""
ROUNDING: Final = 1e-6
"""Below this share a gradient is nothing but rounding; in exact arithmetic it is zero (a key's bias moves all scores of
a query alike). Adam divides it by its own size, so its parameter says nothing and is not compared."""


@dataclass(slots=True)
class Worst:
    """The largest difference so far, and whose it is."""

    value: float = 0.0
    name: str = ""

    def see(self, value: float, name: str) -> None:
        """Keep the larger one; what is no number is larger than any."""
        if not math.isnan(self.value) and not value <= self.value:
            self.value, self.name = value, name


def rounding_names(steps: Sequence[Mapping[str, Tensor]]) -> set[str]:
    """Names of the gradients that are rounding in every step."""
    names: set[str] = set(steps[0])
    for gradients in steps:
        sizes = {name: _largest(tensor) for name, tensor in gradients.items()}
        limit = ROUNDING * max(sizes.values())
        names &= {name for name, size in sizes.items() if size <= limit}
    return names


def compare_gradients(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], worst: Worst) -> None:
    """Hold gradients against all those of a reference."""
    least = SMALL * max(_largest(tensor) for tensor in expected.values())
    for name, tensor in found.items():
        worst.see(_difference(tensor, expected.get(name), least), name)


def compare_parameters(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], left_out: Collection[str], worst: Worst
) -> None:
    """Hold parameters against a reference, but for those whose gradients are rounding."""
    for name, tensor in found.items():
        if name not in left_out:
            worst.see(_difference(tensor, expected.get(name), 0.0), name)


def _difference(found: Tensor, expected: Tensor | None, least: float) -> float:
    """Largest difference over the largest element, which counts as `least` at least; infinite without a partner."""
    if expected is None or expected.shape != found.shape:
        return float("inf")
    scale = max(_largest(expected), least)
    difference = _largest(found - expected)
    return difference / scale if scale else difference


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0
