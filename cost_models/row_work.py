"""Seconds and bytes of every row at every distinct point of a batch, and what is added to them from outside."""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.layer_walk import LayerWalk
from cost_models.mesh import Int
from cost_models.units import Num

MEMORY_FIELDS = (
    *("saved_bytes", "transient_bytes"),
    *("full_saved_bytes", "full_transient_bytes"),
    *("boundary_bytes", "halfway_bytes"),
)
"""Fields of RowWork that `memory_of` gives first, in order; the passes follow."""

TRANSIENT_PLACES = [1, 3, 10]
"""Places of the transient and the full transient bytes, and of the loss's own instant, in `memory_of`."""

INSTANTS = frozenset((1, 3, *range(len(MEMORY_FIELDS), len(MEMORY_FIELDS) + 5)))
"""Places of instants above what is saved, of which a row of several layers has the highest."""

_DATA = TIME_CAUSES.index("dp_communication")


@dataclass(frozen=True, slots=True)
class RowWork:
    """Work of every row at every distinct point, shapes (causes, rows, U) and (rows, U)."""

    forward_parts_s: Array
    backward_parts_s: Array
    weight_s: Array  # the part of backward that can wait: weight gradients of linear layers
    base_parts_s: Array  # the part of backward that is base recompute
    spared_parts_s: Array  # the part of forward that a full recompute which stops early does not run again
    saved_bytes: Array
    transient_bytes: Array
    full_saved_bytes: Array
    full_transient_bytes: Array
    boundary_bytes: Array
    halfway_bytes: Array
    passes: Array  # (5, rows, U): forward, backward, the same of a recomputed row, the loss behind
    host_bytes: Array  # of a micro-batch's activations, in the host's memory

    def take(self, index: Int) -> "RowWork":
        """The same work spread to meshes: U -> B."""
        return RowWork(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))


def with_reference(work: RowWork, forwards: float) -> RowWork:
    """A frozen model runs so many forward passes of every micro-batch, which no recompute runs again."""
    more = forwards * work.forward_parts_s
    return replace(
        work, forward_parts_s=work.forward_parts_s + more, spared_parts_s=work.spared_parts_s + more
    )


def left_alone(work: RowWork, kept: tuple[int, ...]) -> RowWork:
    """Rows that a full recompute passes over: no more seconds and no fewer bytes when they are counted among it."""
    rows = list(kept)
    spared, passes = work.spared_parts_s.copy(), work.passes.copy()
    saved, transient = work.full_saved_bytes.copy(), work.full_transient_bytes.copy()
    spared[:, rows] = (work.forward_parts_s - work.base_parts_s)[:, rows]
    passes[2:4, rows] = work.passes[:2, rows]
    saved[rows], transient[rows] = work.saved_bytes[rows], work.transient_bytes[rows]
    return replace(
        work, spared_parts_s=spared, passes=passes, full_saved_bytes=saved, full_transient_bytes=transient
    )


def inner(values: Array) -> Array:
    """Values (rows, B) of blocks; nothing of the embedding and the head."""
    found = np.zeros_like(values)
    found[1:-1] = values[1:-1]
    return found


def memory_of(walk: LayerWalk) -> tuple[Num, ...]:
    """Bytes in the order of `MEMORY_FIELDS`, and the five of `RowWork.passes`."""
    full = walk.full
    return (
        walk.base.saved_bytes,
        walk.base.transient_bytes,
        full.saved_bytes,
        full.transient_bytes,
        walk.boundary_bytes,
        walk.halfway_bytes,
        walk.base.forward_bytes,
        walk.base.backward_bytes,
        full.forward_bytes,
        full.backward_bytes,
        walk.base.behind_bytes,
    )


def add_memory(total: Array, walk: LayerWalk, count: int, layers: int, *, in_turn: bool) -> None:
    """Add `count` equal layers of a row of `layers` kinds to its bytes, (fields, U).

    What instants hold above the saved bytes is summed, which is more than layers that run one after the other hold;
    `in_turn` takes the highest.
    """
    for cause, values in enumerate(memory_of(walk)):
        if in_turn and cause in INSTANTS:
            total[cause] = np.maximum(total[cause], values)
            continue
        # Below 0 an instant is lower than what is saved, which holds for a row of one layer alone.
        alone = layers == count == 1
        total[cause] += count * (values if alone else np.maximum(values, 0.0))
