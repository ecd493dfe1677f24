"""Where the elements of a box of one of the executor's parameters lie in the tensors of files. Needs no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.executor.weights.layouts import EXPERT, Layout

if TYPE_CHECKING:
    from torch import Tensor

Box = tuple[slice, ...]
"""One slice a dimension, with its start and stop."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A box of a stored tensor and the part of the asked box that it fills; `turned`: its last two dimensions are
    swapped there."""

    key: str
    stored: Box
    part: Box
    turned: bool = False

    def to_part(self, stored: "Tensor") -> "Tensor":
        """The stored box as it stands in the asked one."""
        sizes = [each.stop - each.start for each in self.part]
        return (stored.transpose(-1, -2) if self.turned else stored).reshape(sizes)

    def to_stored(self, part: "Tensor") -> "Tensor":
        """What `to_part` was made from."""
        sizes = [len(range(each.start, each.stop, each.step or 1)) for each in self.stored]
        if not self.turned:
            return part.reshape(sizes)
        return part.reshape(*sizes[:-2], sizes[-1], sizes[-2]).transpose(-1, -2)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter of this shape comes from: the key (with the place of an expert's number where each has its
    own), the layout, which of `sizes` it is, over how many heads they are dealt."""

    key: str
    shape: tuple[int, ...]
    layout: Layout = "plain"
    index: int = 0
    sizes: tuple[int, ...] = ()
    heads: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        """All stored tensors that it has elements of."""
        if self.layout != "expert":
            return (self.key,)
        return tuple(self.key.replace(EXPERT, str(expert)) for expert in range(self.shape[0]))

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of each stored tensor."""
        shape, total = self.shape, sum(self.sizes)
        if self.layout == "expert":
            return shape[1:]
        if self.layout == "transposed":
            return (shape[1], shape[0])
        if self.layout == "concat_transposed":
            return (shape[1], total)
        if self.layout == "experts_in_turn":
            rows = total or shape[1]
            return (shape[0], shape[2], rows) if len(shape) == 3 else (shape[0], rows)
        if self.layout == "experts":
            return (shape[0], total or shape[1], *shape[2:])
        return (total or shape[0], *shape[1:])

    def cuts(self, offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[Cut]:
        """The stored boxes that together are the box of the parameter."""
        box = [slice(start, start + size) for start, size in zip(offsets, sizes, strict=True)]
        part = tuple(slice(0, size) for size in sizes)
        before = sum(self.sizes[: self.index])
        if self.layout == "expert":
            yield from self._by_expert(box)
        elif self.layout in ("by_head", "by_key_head"):
            yield from self._by_head(box)
        elif self.layout == "experts_in_turn":
            yield self._in_turn(box, part)
        elif self.layout == "experts":
            yield Cut(self.key, (box[0], _moved(box[1], before), *box[2:]), part)
        elif self.layout in ("transposed", "concat_transposed"):
            yield Cut(self.key, (box[1], _moved(box[0], before)), part, turned=True)
        else:
            yield Cut(self.key, (_moved(box[0], before), *box[1:]), part)

    def _by_expert(self, box: Sequence[slice]) -> Iterator[Cut]:
        rest = tuple(slice(0, each.stop - each.start) for each in box[1:])
        for place, expert in enumerate(range(box[0].start, box[0].stop)):
            key = self.key.replace(EXPERT, str(expert))
            yield Cut(key, tuple(box[1:]), (slice(place, place + 1), *rest))

    def _by_head(self, box: Sequence[slice]) -> Iterator[Cut]:
        """Head after head: rows of one head of all parts, then those of the next."""
        each = [size // self.heads for size in self.sizes]
        own, whole, before = each[self.index], sum(each), sum(each[: self.index])
        rows, rest = box[0], tuple(slice(0, other.stop - other.start) for other in box[1:])
        for head in range(rows.start // own, -(-rows.stop // own)):
            start, stop = max(rows.start, head * own), min(rows.stop, (head + 1) * own)
            at = head * (whole - own) + before
            stored = (slice(start + at, stop + at), *box[1:])
            yield Cut(self.key, stored, (slice(start - rows.start, stop - rows.start), *rest))

    def _in_turn(self, box: Sequence[slice], part: Box) -> Cut:
        """Every n-th feature of an expert is one part's."""
        step, rows = max(len(self.sizes), 1), box[1]
        dealt = slice(rows.start * step + self.index, (rows.stop - 1) * step + self.index + 1, step)
        if len(box) == 2:
            return Cut(self.key, (box[0], dealt), part)
        return Cut(self.key, (box[0], box[2], dealt), part, turned=True)


def _moved(each: slice, by: int) -> slice:
    return slice(each.start + by, each.stop + by)
