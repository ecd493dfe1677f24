"""The longest path of one instance as counts of operations: a linear lower bound for any durations."""

from dataclasses import dataclass

import numpy as np

from cost_models.schedule.durations import FloatArray, PipelineDurations, Slot, in_units, one_instance
from cost_models.schedule.graph import Column, Graph, graph
from cost_models.schedule.longest_path import run_rows
from cost_models.schedule.names import ScheduleName
from cost_models.schedule.operations import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class PathCoefficients:
    """How often a path through the graph of (schedule, p, v, m) runs every operation.

    The path exists whatever the durations are, so the sum of counts times durations is at most the step for
    all of them, and equal to it for those it was found with.

    Attributes:
        forward_count: forwards of every chunk, those of micro-batch 0 included, shape (p, v).
        backward_count: whole backwards of every chunk, those of the last micro-batch included, shape (p, v).
        first_forward_count: forwards of micro-batch 0, which cost the extra, shape (p, v).
        last_backward_count: backwards of the last micro-batch, or its weight gradients where they are apart,
            which cost the extra, shape (p, v).
        edge_count: steps from one rank to another, each `send_s`.
        link_count: the same by link, shape (p,), see `PipelineDurations.link_s`.
        end_rank: rank on which the path ends.
        input_gradient_count: input gradients of every chunk that are apart, shape (p, v); None where the
            schedule splits no backward.
        weight_gradient_count: weight gradients of every chunk that are apart, likewise.
        paired_forward_count: forwards among forward_count that run beside a backward, likewise.
        paired_backward_count: those backwards among backward_count.
    """

    forward_count: IntArray
    backward_count: IntArray
    first_forward_count: IntArray
    last_backward_count: IntArray
    edge_count: int
    end_rank: int
    input_gradient_count: IntArray | None = None
    weight_gradient_count: IntArray | None = None
    link_count: IntArray | None = None
    paired_forward_count: IntArray | None = None
    paired_backward_count: IntArray | None = None

    def lower_bound_s(self, durations: PipelineDurations) -> FloatArray:
        """Seconds of the path under other durations of the same shape, () or (B,)."""
        path_s = np.asarray(self.edge_count * np.asarray(durations.send_s, dtype=np.float64))
        if durations.link_s is not None and self.link_count is not None:
            path_s = np.tensordot(self.link_count, durations.link_s, axes=1)
        for name, seconds in _counted(durations):
            count = getattr(self, name)
            if count is not None and seconds is not None:
                path_s = path_s + np.tensordot(count, seconds, axes=2)
        return np.asarray(path_s)


def _counted(durations: PipelineDurations) -> tuple[tuple[str, FloatArray | None], ...]:
    """Counts of a path, by name, and the seconds that each of them stands for."""
    forward_s, backward_s = durations.paired_s()
    return (
        ("paired_forward_count", forward_s - durations.forward_s),
        ("paired_backward_count", backward_s - durations.backward_s),
        ("forward_count", durations.forward_s),
        ("backward_count", durations.backward_s),
        ("first_forward_count", durations.first_forward_extra_s),
        ("last_backward_count", durations.last_backward_extra_s),
        ("input_gradient_count", durations.input_gradient_s),
        ("weight_gradient_count", durations.weight_gradient_s),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ManyPaths:
    """n paths of one point, whose bounds on many instances are a few products of matrices."""

    counts: dict[str, FloatArray]  # (n, p v) each, without those that the schedule does not tell apart
    edge_count: FloatArray  # (n, 1)
    link_count: FloatArray  # (n, p)
    end_rank: IntArray  # (n,)

    @classmethod
    def of(cls, paths: list[PathCoefficients]) -> "ManyPaths":
        """The coefficients of critical paths one under the other."""
        counts = {
            name: np.stack([np.ravel(getattr(path, name)) for path in paths]).astype(np.float64)
            for name in PathCoefficients.__dataclass_fields__
            if isinstance(getattr(paths[0], name), np.ndarray)
        }
        edges = np.asarray([[path.edge_count] for path in paths], dtype=np.float64)
        links = counts.pop("link_count")
        return cls(counts, edges, links, np.asarray([path.end_rank for path in paths]))

    def lower_bounds_s(self, durations: PipelineDurations) -> FloatArray:
        """Seconds of every path under durations with the axis B, (n, B)."""
        instances = durations.forward_s.shape[2]
        if durations.link_s is None:
            paths_s = self.edge_count * np.broadcast_to(durations.send_s, instances)
        else:
            links = durations.link_s.reshape(len(durations.link_s), -1)
            paths_s = self.link_count @ np.broadcast_to(links, (len(links), instances))
        for name, seconds in _counted(durations):
            if name in self.counts and seconds is not None and seconds.any():
                paths_s = paths_s + self.counts[name] @ seconds.reshape(-1, instances)
        found: FloatArray = paths_s
        return found


def critical_path(
    schedule: ScheduleName,
    p: int,
    v: int,
    m: int,
    durations: PipelineDurations,
    *,
    tail_s: FloatArray | None = None,
) -> PathCoefficients:
    """A longest path of one instance (durations without the axis B), followed back from its end.

    It ends on the rank whose end is the latest, with `tail_s` of shape (p,) added where it is given (seconds
    of the rank's own after its last backward).
    """
    fixed = graph(schedule, p, v, m)
    units = in_units(one_instance(durations), p, v, fixed.level_count, split=schedule.splits_backward)
    send = np.broadcast_to(units.send[:, 0], (p,)).tolist()
    rows = run_rows(fixed, units, 0, extend=False)
    ends = [rows[-offset] for offset in fixed.last_offset.tolist()]
    ends_s = np.ldexp(np.asarray(ends), int(units.exponent[0]))
    end_rank = int(np.argmax(ends_s if tail_s is None else ends_s + tail_s))
    program_offset, data_offset, crosses, slot, link = _unrolled(fixed)
    row = len(rows) - int(fixed.last_offset[end_rank])
    counts = np.zeros(len(Slot) * p * v, dtype=np.int64)
    link_count = np.zeros(p, dtype=np.int64)
    while row > 0:
        counts[slot[row - 1]] += 1
        before, source, crossed = row - program_offset[row - 1], row - data_offset[row - 1], crosses[row - 1]
        by_data = rows[source] + send[link[row - 1]] * crossed > rows[before]
        link_count[link[row - 1]] += crossed * by_data
        row = source if by_data else before
    by_kind = counts.reshape(len(Slot), p, v)
    last_weight = by_kind[Slot.LAST_WEIGHT_GRADIENT]
    weight = by_kind[Slot.WEIGHT_GRADIENT] + last_weight
    return PathCoefficients(
        forward_count=by_kind[[Slot.FORWARD, Slot.FIRST_FORWARD, Slot.PAIRED_FORWARD]].sum(axis=0),
        backward_count=by_kind[[Slot.BACKWARD, Slot.LAST_BACKWARD, Slot.PAIRED_BACKWARD]].sum(axis=0),
        first_forward_count=by_kind[Slot.FIRST_FORWARD],
        last_backward_count=by_kind[Slot.LAST_BACKWARD] + last_weight,
        edge_count=int(link_count.sum()),
        end_rank=end_rank,
        input_gradient_count=by_kind[Slot.INPUT_GRADIENT] if schedule.splits_backward else None,
        weight_gradient_count=weight if schedule.splits_backward else None,
        link_count=link_count,
        paired_forward_count=by_kind[Slot.PAIRED_FORWARD] if schedule.splits_backward else None,
        paired_backward_count=by_kind[Slot.PAIRED_BACKWARD] if schedule.splits_backward else None,
    )


def _unrolled(fixed: Graph) -> list[list[int]]:
    """Program offset, data offset, crossing, slot and link of every operation of the whole graph."""
    wanted = [Column.PROGRAM_OFFSET, Column.DATA_OFFSET, Column.CROSSES, Column.SLOT, Column.LINK]
    columns = np.concatenate([part.columns[wanted] for part, _ in fixed.parts()], axis=1)
    unrolled: list[list[int]] = columns.tolist()
    return unrolled
