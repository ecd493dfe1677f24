"""A run of elements of a flattened tensor as boxes of the tensor: what a flat buffer's share holds of a parameter."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Box:
    """A box of a tensor whose elements lie one after the other in the flattened tensor, from `first` on."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    first: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.sizes)


def boxes_of(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Elements [start, stop) of the flattened tensor, in order: at most 2 x dimensions - 1 boxes.

    What is left of the first row, the whole rows, and the beginning of the last row; the parts of rows in the same way.
    """
    if start >= stop:
        return
    if len(shape) <= 1:
        yield Box((start,) * len(shape), (stop - start,) * len(shape), start)
        return
    row = prod(shape[1:])
    whole_start = min(-(-start // row) * row, stop)
    whole_stop = max(stop // row * row, whole_start)
    yield from _inside_a_row(shape, start, whole_start)
    if whole_start < whole_stop:
        rows = (whole_stop - whole_start) // row
        yield Box((whole_start // row, *(0 for _ in shape[1:])), (rows, *shape[1:]), whole_start)
    yield from _inside_a_row(shape, whole_stop, stop)


def _inside_a_row(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    """Elements that lie in one row."""
    if start >= stop:
        return
    row = prod(shape[1:])
    index = start // row
    for box in boxes_of(shape[1:], start - index * row, stop - index * row):
        yield Box((index, *box.offsets), (1, *box.sizes), index * row + box.first)
