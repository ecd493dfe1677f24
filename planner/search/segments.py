"""One chunk per rank: what every segment of blocks costs on every rank, with its best recompute.

Segments are kept in bands: row b is where a segment stops, column n - 1 its number of blocks, n = 1..width.

With one chunk per rank (v = 1) memory does not couple the segments, so each (rank, segment) has one best number of
fully recomputed blocks: the smallest K that fits. Proof: backward seconds do not fall with K; end_i grows by at least
the growth of B[i], since the last backward of rank i ends every path to end_i, and no other end falls; the exposed
reduction max(c s, s - w B[i]) falls by at most w times that growth, w <= 1. So the step does not fall with K.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import (
    Array,
    ChunkCosts,
    Index,
    MeshCosts,
    chunk_costs,
    exposed_sync_s,
    rows_of,
    step_tail_s,
)
from cost_models.schedule import in_flight


@dataclass(frozen=True, slots=True)
class Band:
    """Start, stop and number of blocks of every segment of up to `width` blocks; shape (L + 1, width)."""

    start: Index
    stop: Index
    blocks: Index
    legal: NDArray[np.bool_]  # starts at 0 or later

    @classmethod
    def of(cls, num_blocks: int, width: int) -> "Band":
        """All segments of 1..width blocks of L."""
        return _band(num_blocks, width)


@lru_cache(maxsize=256)
def _band(num_blocks: int, width: int) -> Band:
    stop, blocks = np.meshgrid(np.arange(num_blocks + 1), np.arange(1, width + 1), indexing="ij")
    start = stop - blocks
    return Band(np.maximum(start, 0), stop, blocks, start >= 0)


@dataclass(frozen=True, slots=True)
class SegmentTable:
    """Seconds of every segment of the band; zero where no recompute `fits`.

    Ranks that hold equally many micro-batches share a table: `table_of_rank[i]` is its place on the leading
    axis of `fits`, `backward_s`, `exposed_s` and `full_layers`, shape (tables, L + 1, width).
    """

    band: Band
    fits: NDArray[np.bool_]
    forward_s: Array
    backward_s: Array
    exposed_s: Array
    tail_s: Array
    full_layers: Index
    table_of_rank: tuple[int, ...]


def segment_table(mesh: MeshCosts, width: int, full: int | None) -> SegmentTable:
    """Price the band; `full` fixes K of all segments, None lets each take the smallest that fits on its rank."""
    band = Band.of(mesh.table.num_blocks, width)
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    held = [flight.vectors[rank][0][0] for rank in range(mesh.pp)]
    counts = sorted(set(held))
    shape = (len(counts), *band.start.shape)
    backward_s, exposed_s = np.zeros(shape), np.zeros(shape)
    full_layers = np.zeros(shape, dtype=np.int64)
    open_ = np.broadcast_to(band.legal, shape).copy()
    first: ChunkCosts | None = None
    for number in range(width + 1) if full is None else (full,):
        here = open_.any(axis=0) & ((band.blocks >= number) | (full is not None))
        if not here.any():
            break
        of_rows = rows_of(band.start[here], band.stop[here], mesh.table.num_blocks)
        costs = chunk_costs(mesh, *of_rows, np.full(int(here.sum()), number))
        fits = _fits(mesh, costs, np.asarray(counts, dtype=np.float64)) & open_[:, here]
        at_class, at_segment = np.nonzero(fits)
        rows, columns = (index[at_segment] for index in np.nonzero(here))
        backward_s[at_class, rows, columns] = costs.backward_s[at_segment]
        exposed = exposed_sync_s(mesh.rules, costs.sync_s, costs.backward_s)
        exposed_s[at_class, rows, columns] = exposed[at_segment]
        full_layers[at_class, rows, columns] = np.minimum(number, band.blocks[rows, columns])
        open_[at_class, rows, columns] = False
        first = costs if first is None else first
    forward_s, tail_s = np.zeros(band.start.shape), np.zeros(band.start.shape)
    if first is not None:
        forward_s[band.legal] = first.forward_s
        tail_s[band.legal] = step_tail_s(mesh.rules, first.gather_s, first.optimizer_s)
    table_of_rank = tuple(counts.index(count) for count in held)
    return SegmentTable(
        band, ~open_ & band.legal, forward_s, backward_s, exposed_s, tail_s, full_layers, table_of_rank
    )


def _fits(mesh: MeshCosts, costs: ChunkCosts, held: Array) -> NDArray[np.bool_]:
    """Whether each segment fits with each number of micro-batches held, shape (held, segments)."""
    static = costs.static_bytes + mesh.rules.rank_constant_bytes
    running = static + held[:, None] * costs.saved_bytes + costs.transient_bytes
    limit = mesh.rules.allocated_limit_bytes
    fits: NDArray[np.bool_] = (running <= limit) & (static + costs.step_transient_bytes <= limit)
    return fits & (costs.host_bytes <= mesh.rules.host_room_bytes)


def stage_recompute(table: SegmentTable, stages: Index) -> Index:
    """The table's best K of every stage of n cuts, both of shape (n, p); 0 where nothing fits."""
    stop = np.cumsum(stages, axis=1)
    width = table.band.start.shape[1]
    ranks = np.asarray(table.table_of_rank)[None, :]
    full: Index = table.full_layers[ranks, stop, np.minimum(stages, width) - 1]
    return full
