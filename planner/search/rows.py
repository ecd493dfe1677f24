"""Linear rows over stage boundaries, shared by the linear relaxation and the integer model (v > 1).

With x[g] the first block of virtual stage g and s[g] the end of its fully recomputed blocks, every sum over the rows
of a virtual stage is a difference of prefix sums, so that seconds and bytes of all virtual stages are functions of one
boundary each:

    F[g] = PF(x[g+1]) - PF(x[g])
    B[g] = PB(x[g+1]) - PB(x[g]) + PE(s[g]) - PE(x[g])
    saved[g] = PM(x[g+1]) - PM(x[g]) + (PN - PM)(s[g]) - (PN - PM)(x[g])

PF, PB, PM have the embedding at 0 and the head at L; PE (extra seconds) and PN (saved bytes) of recomputed blocks
have not. A row is sum_g X[g](x[g]) + sum_g S[g](s[g]) + constant, with tables X and S over block positions 0..L.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from cost_models.chunk import Array, Index, MeshCosts
from cost_models.schedule import PathCoefficients, in_flight
from cost_models.step import virtual_stage
from planner.search.problem import num_virtual_stages


class RowKind(Enum):
    """What a row is at most."""

    PIPELINE = "pipeline"  # row + longest tail <= target
    TAIL = "tail"  # row <= longest tail
    MEMORY = "memory"  # row <= 0, bytes as shares of the limit
    COUNT = "count"  # row <= 0, blocks


@dataclass(frozen=True, slots=True)
class Row:
    """sum_g boundary[g](x[g]) + sum_g split[g](s[g]) + constant; shapes (N + 1, L + 1) and (N, L + 1)."""

    kind: RowKind
    boundary: Array
    split: Array
    constant: float

    def without_splits(self) -> Array:
        """Boundary tables when nothing is recomputed in full, so that s[g] = x[g]."""
        boundary = self.boundary.copy()
        boundary[:-1] += self.split
        return boundary


@dataclass(frozen=True, slots=True)
class BlockSums:
    """Prefix sums by block position 0..L; edges are in the sums of the first four seconds and of the bytes."""

    forward_s: Array
    backward_s: Array
    sync_s: Array
    tail_s: Array
    static_bytes: Array
    saved_bytes: Array
    step_transient_bytes: Array
    extra_s: Array  # recompute, blocks only
    freed_bytes: Array  # saved minus saved under full recompute, blocks only

    @classmethod
    def of(cls, mesh: MeshCosts) -> "BlockSums":
        """Prefix sums of the mesh's table."""
        sums = mesh.prefix

        def edged(values: Array) -> Array:
            return np.concatenate((values[:1], values[2:-2], values[-1:]))

        return cls(
            edged(sums.forward),
            edged(sums.backward),
            edged(sums.sync),
            edged(sums.optimizer) + mesh.rules.gather_exposed * edged(sums.gather),
            edged(sums.static),
            edged(sums.saved),
            edged(sums.step_transient),
            sums.full[1:-1] - sums.full[1],
            (sums.saved - sums.full_saved)[1:-1] - (sums.saved - sums.full_saved)[1],
        )

    def corners(self, low: int, high: int) -> Index:
        """Positions in [low, high] between which every sum is linear: both ends and every kink."""
        corner = np.zeros(high - low + 1, dtype=bool)
        corner[[0, -1]] = True
        for name in self.__dataclass_fields__:
            values = getattr(self, name)[low : high + 1]
            bend = np.abs(np.diff(values, 2))
            corner[1:-1] |= bend > 1e-9 * (np.abs(np.diff(values)).max(initial=0.0) + 1e-300)
        return low + np.flatnonzero(corner)


class RowBuilder:
    """Builds the rows of one mesh; rank sums are over the virtual stages of the rank."""

    def __init__(self, mesh: MeshCosts) -> None:
        self.mesh = mesh
        self.sums = BlockSums.of(mesh)
        self.stages_of_rank = virtual_stage(mesh)

    def paths(self, path: PathCoefficients) -> Iterable[Row]:
        """T >= sum f F + b B + edges send + r of the end rank, a row for each of the two parts of r."""
        rules = self.mesh.rules
        forward, backward = (_global(count) for count in (path.forward_count, path.backward_count))
        ends = np.zeros(len(forward))
        ends[self.stages_of_rank[path.end_rank]] = 1.0
        sends_s = path.edge_count * rules.send_s
        yield self._seconds(forward, backward, rules.sync_exposed_min * ends, sends_s)
        if self.sums.sync_s[-1] > 0.0 and rules.sync_exposed_min < 1.0:
            yield self._seconds(forward, backward - rules.sync_overlap * ends, ends, sends_s)

    def tails(self) -> Iterable[Row]:
        """Longest tail >= o[i] for every rank."""
        for stages in self.stages_of_rank:
            boundary, split = self._zeros()
            for stage in stages:
                _add(boundary, stage, 1.0, self.sums.tail_s)
            yield Row(RowKind.TAIL, boundary, split, 0.0)

    def memory(self, full: int | None) -> Iterable[Row]:
        """Peak of every rank <= limit, with the transient bytes at a lower bound; shares of the limit."""
        mesh, limit = self.mesh, self.mesh.rules.allocated_limit_bytes
        if not np.isfinite(limit):
            return
        flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
        for rank, stages in enumerate(self.stages_of_rank):
            static, split = self._zeros()
            for stage in stages:
                _add(static, stage, 1.0 / limit, self.sums.static_bytes)
            rest = mesh.rules.rank_constant_bytes / limit - 1.0
            stepping = static.copy()
            for stage in stages:
                _add(stepping, stage, 1.0 / limit, self.sums.step_transient_bytes)
            yield Row(RowKind.MEMORY, stepping, split, rest)
            for held in flight.vectors[rank]:
                running, released = static.copy(), split.copy()
                for stage, count in zip(stages, held, strict=True):
                    self._add_saved(running, released, stage, count / limit)
                yield from self._transients(Row(RowKind.MEMORY, running, released, rest), stages, full)

    def counts(self, target_s: float) -> Iterable[Row]:
        """Blocks of at least c seconds on a rank: m c count <= target less the rank's edges, rounded down."""
        mesh, size = self.mesh, len(self.sums.forward_s)
        rows_s = mesh.table.forward_parts_s.sum(0) + mesh.table.backward_parts_s.sum(0)
        blocks_s = rows_s[1:-1]
        for least_s in np.unique(blocks_s)[-_MOST_KINDS:]:
            heavy = np.concatenate(([0.0], np.cumsum(blocks_s >= least_s * (1 - 1e-12))))
            for rank, stages in enumerate(self.stages_of_rank):
                edges_s = rows_s[0] * (rank == 0) + rows_s[-1] * (rank == mesh.pp - 1)
                room = (target_s / mesh.num_micro_batches - edges_s) / least_s if least_s > 0.0 else size
                boundary, split = self._zeros()
                for stage in stages:
                    _add(boundary, stage, 1.0, heavy)
                yield Row(RowKind.COUNT, boundary, split, -float(np.floor(min(room, size) + 1e-9)))

    def _transients(self, row: Row, stages: Index, full: int | None) -> Iterable[Row]:
        """The row with bytes above saved tensors: none, of the head, a last block, a last recomputed one."""
        table, limit = self.mesh.table, self.mesh.rules.allocated_limit_bytes
        yield row
        for stage in stages:
            is_last = stage == num_virtual_stages(self.mesh) - 1
            if is_last:
                yield Row(row.kind, row.boundary, row.split, row.constant + table.transient_bytes[-1] / limit)
            else:
                # The last block is recomputed in full or not; nothing of its virtual stage stands behind it.
                least = (
                    table.transient_bytes
                    if full == 0
                    else np.minimum(table.transient_bytes, table.full_transient_bytes)
                )
                boundary = row.boundary.copy()
                boundary[stage + 1, 1:] += least[1:-1] / limit
                yield Row(row.kind, boundary, row.split, row.constant)
            if full:
                # Above what the rows behind have released: full transient of the block before s[g].
                boundary, split = row.boundary.copy(), row.split.copy()
                boundary[stage + 1] -= self.sums.saved_bytes / limit
                split[stage] += self.mesh.prefix.saved[1:-1] / limit
                split[stage, 1:] += table.full_transient_bytes[1:-1] / limit
                yield Row(row.kind, boundary, split, row.constant)

    def _seconds(self, forward: Array, backward: Array, sync: Array, constant_s: float) -> Row:
        sums = self.sums
        whole = np.outer(forward, sums.forward_s) + np.outer(backward, sums.backward_s)
        whole += np.outer(sync, sums.sync_s)
        boundary, split = self._zeros()
        split += np.outer(backward, sums.extra_s)
        boundary[1:] += whole
        boundary[:-1] -= whole + split
        return Row(RowKind.PIPELINE, boundary, split, constant_s)

    def _add_saved(self, boundary: Array, split: Array, stage: int, factor: float) -> None:
        _add(boundary, stage, factor, self.sums.saved_bytes)
        split[stage] -= factor * self.sums.freed_bytes
        boundary[stage] += factor * self.sums.freed_bytes

    def _zeros(self) -> tuple[Array, Array]:
        count, size = num_virtual_stages(self.mesh), len(self.sums.forward_s)
        return np.zeros((count + 1, size)), np.zeros((count, size))


# Distinct block times for which rounded counts are added; more make the model larger than they help.
_MOST_KINDS = 4


def _add(boundary: Array, stage: int, factor: float, sums: Array) -> None:
    boundary[stage + 1] += factor * sums
    boundary[stage] -= factor * sums


def _global(counts: Index) -> Array:
    """(p, v) in the order of virtual stages."""
    ordered: Array = counts.T.reshape(-1).astype(np.float64)
    return ordered
