"""What an optimizer updates: a local tensor, and how the whole matrices behind it are reached."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

MatrixFunction = Callable[[Tensor], Tensor]
"""[..., rows, columns] -> the same shape."""


class Matrices(Protocol):
    """The whole matrices of which a local tensor holds a part."""

    def apply(self, function: MatrixFunction, local: Tensor) -> Tensor:
        """The local part of the function of each whole matrix; collective over the ranks that hold the parts."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A local tensor whose `grad` is set before a step; `matrices` only where all of it belongs to hidden matrices."""

    parameter: nn.Parameter
    matrices: Matrices | None = None
