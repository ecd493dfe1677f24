"""Bounds of many meshes at once that try every cut, one chunk a rank and whole backwards, with memory left out.

The rank program (rank_program.py) without memory and recompute, for all meshes of one (schedule, p): then what comes
before, behind and after a rank does not depend on the cut but on its place alone. With X the sum of a row's seconds up
to a block,

    path_i(a, b) = F[0, a) + i (e + q) + m t + max(0, gains) + max(B[0, a) + i (e + q), r) + o
    gains        as in rank_program.py, with R = t[b, L) + 2 (p - 1 - i) (e + q)
    bound        = min over cuts of max_i path_i

Segments longer than a band cost at least m t and are left at that.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import SCHEDULES, MeshBatch
from cost_models.pricing import Pricer
from cost_models.rows import Rows
from cost_models.schedule.names import ScheduleName
from planner.search.bounding.cut_bounds import Late, RowTimes, never
from planner.search.windows import takes_every_cut

MOST_NUMBERS = 200_000
"""Numbers of one intermediate table: blocks x meshes."""


def program_bounds(
    pricer: Pricer, rows: Rows, meshes: MeshBatch, times: RowTimes, spare_share: Array, late: Late = never
) -> Array:
    """Pipeline and tail seconds that no cut is below, (B,); 0 where not every cut is declared, or it is late."""
    bounds = np.zeros(meshes.size)
    points = np.stack([meshes.schedule, meshes.pp])
    unique, inverse = np.unique(points, axis=1, return_inverse=True)
    micro = meshes.micro_batches(pricer.job.global_batch).astype(float)
    together = max(MOST_NUMBERS // len(rows.blocks), 1)
    for index, (schedule, pp) in enumerate(unique.T.tolist()):
        here = np.flatnonzero((inverse.reshape(-1) == index) & (meshes.vpp == 1))
        if not here.size or not takes_every_cut(SCHEDULES[schedule], 1, len(rows.blocks)):
            continue
        for start in range(0, here.size, together):
            if late():
                return bounds
            some = here[start : start + together]
            shown = times.send_s[some] * pricer.engine.overlap().send_shown_plain
            program = _Program.of(rows, times.take(some), shown, micro[some])
            bounds[some] = program.solve(pp, SCHEDULES[schedule]) * (1.0 - spare_share[some])
    return bounds


@dataclass(frozen=True, slots=True)
class _Program:
    """Sums of rows up to every block, (L + 1, B); the embedding is before block 0, the head behind the last."""

    forward_s: Array
    backward_s: Array
    sync_s: Array
    tail_s: Array
    shown_s: Array
    hop_s: Array
    micro: Array
    overlap: Array
    least_shown: Array

    @classmethod
    def of(cls, rows: Rows, times: RowTimes, shown_s: Array, micro: Array) -> "_Program":
        """Sums of meshes' rows."""

        def until(values: Array) -> Array:
            sums = np.cumsum(values[list(rows.layers)], axis=0)
            sums[-2] = sums[-1]
            return np.concatenate((np.zeros_like(sums[:1]), sums[1:-1]))

        hop_s = times.send_s + shown_s
        return cls(
            until(times.forward_s),
            until(times.backward_s),
            until(times.sync_s),
            until(times.tail_s),
            shown_s,
            hop_s,
            micro,
            times.sync_overlap,
            times.sync_exposed_min,
        )

    def solve(self, pp: int, schedule: ScheduleName) -> Array:
        """The bound, (B,)."""
        blocks = len(self.forward_s) - 1
        widest = blocks - pp + 1
        width = min(widest, -(-3 * blocks // (2 * pp)) + 2)
        segments = [_Segments.of(self, size) for size in range(1, width + 1)]
        reached = np.full(self.forward_s.shape, np.inf)
        reached[0] = -np.inf
        for rank in range(pp):
            grown = np.full(reached.shape, np.inf)
            behind = pp - 1 - rank  # ranks that hold at least a block each, at most `width`
            for size, one in enumerate(segments, 1):
                first = max(rank, blocks - width * behind - size)
                stop = min(rank * width, blocks - behind - size) + 1
                if first < stop:
                    path_s = one.of_starts(first, stop).path(self, rank, pp, schedule)
                    np.maximum(path_s, reached[first:stop], out=path_s)
                    ends = grown[first + size : stop + size]
                    np.minimum(ends, path_s, out=ends)
            reached = grown
        last: Array = reached[-1]
        if width == widest:
            return last
        both = self.forward_s + self.backward_s
        outside: Array = self.micro * (both[width + 1 :] - both[: -width - 1]).min(0)
        return np.minimum(last, outside)


@dataclass(frozen=True, slots=True)
class _Segments:
    """Every segment of one size, (L + 1 - size, B), as far as no rank matters."""

    before: Array  # forwards of the rows before
    after: Array  # their backwards
    both: Array
    shorter: Array
    behind: Array
    exposed: Array
    own: Array  # m t + o

    @classmethod
    def of(cls, program: _Program, size: int) -> "_Segments":
        """Segments of `size` blocks."""
        begin, end = slice(None, -size), slice(size, None)
        forward = program.forward_s[end] - program.forward_s[begin] + program.shown_s
        backward = program.backward_s[end] - program.backward_s[begin] + program.shown_s
        sync = program.sync_s[end] - program.sync_s[begin]
        exposed = np.maximum(program.least_shown * sync, sync - program.overlap * backward)
        behind = program.forward_s[-1] + program.backward_s[-1]
        behind = behind - program.forward_s[end] - program.backward_s[end]
        both = forward + backward
        own = program.micro * both + program.tail_s[end] - program.tail_s[begin]
        shorter = np.minimum(forward, backward)
        return cls(program.forward_s[begin], program.backward_s[begin], both, shorter, behind, exposed, own)

    def of_starts(self, first: int, stop: int) -> "_Segments":
        """Those that start at some blocks."""
        return _Segments(*(getattr(self, name)[first:stop] for name in self.__dataclass_fields__))

    def path(self, program: _Program, rank: int, pp: int, schedule: ScheduleName) -> Array:
        """Paths through every segment on a rank."""
        micro, hops = program.micro, rank * program.hop_s
        trip = self.behind + 2.0 * (pp - 1 - rank) * program.hop_s
        path: Array = self.before + hops + self.own
        path += np.maximum(self.after + hops, self.exposed)
        if schedule is ScheduleName.GPIPE:
            path += trip
            return path
        warm_up = np.minimum(pp - 1 - rank, micro)
        gain = np.maximum(0.0, trip - np.minimum(warm_up, micro - 1.0) * self.shorter)
        more = (micro - 1.0) // (warm_up + 1.0) - 1.0
        round_s = trip - warm_up * self.both
        again = trip + round_s + more * np.maximum(round_s, 0.0)
        path += np.maximum(gain, np.where(micro - 1.0 > warm_up, again, 0.0))
        return path
