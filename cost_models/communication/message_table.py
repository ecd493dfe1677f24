"""Many messages as arrays: one row a message, further axes the candidate layouts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.communication.collectives import GATHERS, lines_of
from cost_models.communication.lines import Array, Layout, Lines, lay_out, priced
from cost_models.communication.network import Network
from cost_models.communication.spans import ExpertGroups, Span
from cost_models.operators.base import Axis, Collective, Message
from cost_models.units import Num

_AXES: Final = tuple(Axis)
_COLLECTIVES: Final = tuple(Collective)


@dataclass(frozen=True, slots=True)
class MessageGroup:
    """Consecutive rows that one set of lines prices; all-gather stands for reduce-scatter too."""

    collective: Collective
    axis: Axis
    fan_out: int
    rows: slice


@dataclass(frozen=True, slots=True)
class MessageTable:
    """Messages sorted into groups; `bytes` of one message and `count` have shape (messages, *batch).

    `order[i]` is the position in the given list of sorted row i; the other columns and all results follow
    the list.
    """

    bytes: Array
    count: Array
    order: NDArray[np.intp]
    groups: tuple[MessageGroup, ...]
    phases: NDArray[np.intp]
    axes: tuple[Axis, ...]
    overlap_classes: tuple[str, ...]


def stack_messages(messages: Sequence[Message], *, apart: bool = False) -> MessageTable:
    """Messages whose fields are scalars or arrays over candidates, broadcast into one table.

    `apart` keeps reductions from gathers, which measured curves tell apart.
    """
    shapes = {_shape(field) for one in messages for field in (one.bytes, one.count)}
    batch = np.broadcast_shapes(*shapes)
    order = sorted(range(len(messages)), key=lambda i: _group_key(messages[i], apart))
    moved, count = np.empty((len(messages), *batch)), np.empty((len(messages), *batch))
    for row, position in enumerate(order):
        moved[row], count[row] = messages[position].bytes, messages[position].count
    return MessageTable(
        bytes=moved,
        count=count,
        order=np.array(order, dtype=np.intp),
        groups=_groups([messages[i] for i in order], apart),
        phases=np.array([int(one.phase) for one in messages], dtype=np.intp),
        axes=tuple(one.axis for one in messages),
        overlap_classes=tuple(one.overlap_class for one in messages),
    )


def message_seconds(
    table: MessageTable, spans: Mapping[Axis, Span], network: Network, groups: ExpertGroups | None = None
) -> Array:
    """Seconds of each message, `count` calls together; shape (messages, *batch), in the order given.

    `spans` gives size and stride of every axis that a message travels on, scalars or arrays over the same
    batch; an axis that is absent has one rank.
    """
    axes = [axis for axis in _AXES if axis in spans]
    if not axes:
        return np.zeros_like(table.bytes)
    num_dims = table.bytes.ndim - 1
    at = lay_out(_stacked([spans[axis] for axis in axes], num_dims), network)
    batch = np.broadcast_shapes(table.bytes.shape[1:], at.size.shape[1:])
    widen = len(batch) - num_dims
    seconds = np.zeros((len(table.bytes), *batch))
    found: dict[tuple[Collective, int], Lines] = {}
    for group in table.groups:
        if group.axis not in spans:
            continue
        key = (group.collective, group.fan_out)
        if key not in found:
            found[key] = lines_of(group.collective, at, network, group.fan_out, groups)
        row = axes.index(group.axis)
        lines = Lines(found[key].start_s[:, row, np.newaxis], found[key].s_per_byte[:, row, np.newaxis])
        payload, count = _widened(table.bytes, group.rows, widen), _widened(table.count, group.rows, widen)
        each = priced(lines, payload, _axis_of(at, row), group.collective, network)
        seconds[table.order[group.rows]] = each * count
    return seconds


def _axis_of(at: Layout, row: int) -> Layout:
    """The groups of one mesh axis; its axis stays, of length 1."""
    part = slice(row, row + 1)
    return Layout(
        at.size[part],
        at.members[:, part],
        at.inside[:, part],
        at.used[:, part],
        at.links[:, part],
        at.base[:, part],
    )


def _stacked(spans: list[Span], num_dims: int) -> Span:
    """Spans of several axes as one, with a leading axis for the mesh axes and at least `num_dims` more."""
    columns = [np.asarray(value, dtype=np.int64) for span in spans for value in (span.size, span.stride)]
    whole = np.stack(np.broadcast_arrays(*columns, np.zeros((1,) * num_dims, dtype=np.int64))[:-1])
    return Span(whole[0::2], whole[1::2])


def _widened(column: Array, rows: slice, num_axes: int) -> Array:
    """Rows of a column with further axes for a batch that only the spans have."""
    part = column[rows]
    return part.reshape(len(part), *[1] * num_axes, *part.shape[1:])


def _shape(value: Num) -> tuple[int, ...]:
    return value.shape if isinstance(value, np.ndarray) else ()


def _group_key(message: Message, apart: bool) -> tuple[int, int, int]:
    priced_as = _priced_as(message.collective, apart)
    return _COLLECTIVES.index(priced_as), _AXES.index(message.axis), message.fan_out


def _priced_as(collective: Collective, apart: bool) -> Collective:
    return Collective.ALL_GATHER if collective in GATHERS and not apart else collective


def _groups(messages: list[Message], apart: bool) -> tuple[MessageGroup, ...]:
    groups: list[MessageGroup] = []
    start = 0
    for row, message in enumerate(messages):
        last = row + 1 == len(messages)
        if last or _group_key(messages[row + 1], apart) != _group_key(message, apart):
            rows = slice(start, row + 1)
            kind = _priced_as(message.collective, apart)
            groups.append(MessageGroup(kind, message.axis, message.fan_out, rows))
            start = row + 1
    return tuple(groups)
