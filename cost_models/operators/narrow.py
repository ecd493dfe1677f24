"""Inputs of linears that are kept as fp8 and fp4 products multiplied them."""

from typing import Final

from cost_models.operators.base import DtypeRole, Style, Tensor
from cost_models.units import Num

NARROW_SUFFIX: Final = ".narrow"
"""What the id of a narrow copy ends in."""


def kept_input(name: str, elements: Num, style: Style, *, wide: bool = False) -> Tensor:
    """A linear's input: the tensor itself, or the narrow copy that was multiplied, a storage of its own."""
    if wide or not style.narrow_bytes:
        return Tensor(name, elements)
    return Tensor(name + NARROW_SUFFIX, elements, DtypeRole.NARROW)
