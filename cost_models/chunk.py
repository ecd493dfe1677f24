"""A contiguous segment of layers on one pipeline rank: seconds and bytes, for many segments at once.

A mesh (every knob but stage boundaries and the number of fully recomputed layers) gives one `LayerTable`: a row for
the embedding (row 0), one for each block (rows 1..L) and one for the head with everything after the blocks (row L+1).
A virtual stage of blocks [a, b) is the row segment [a + 1, b + 1), widened to row 0 on the first and to row L + 1 on
the last virtual stage, which may hold no block beside. Prefix sums and range maxima answer any number of segments in a
few array operations, so the search's option tables and the evaluation of one strategy are the same function.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.range_max import RangeMax
from cost_models.schedule import ScheduleName

Array = NDArray[np.float64]
Index = NDArray[np.int64]

TIME_CAUSES = (
    "compute",
    "tp_communication",
    "cp_communication",
    "ep_communication",
    "pp_communication",
    "dp_communication",
)
"""Causes that the duration of a forward or backward is made of, in the order of the parts' leading axis."""

STATIC_CAUSES = ("weights", "gradients", "optimizer")
"""Causes of the bytes that stay for the whole step, in the order of the parts' leading axis."""


@dataclass(frozen=True, slots=True)
class LayerTable:
    """Costs of every row of one mesh for one micro-batch on one rank; shapes (causes, R) or (R,) with R = L + 2.

    `backward_parts_s` holds input gradient, weight gradient and the mesh's base (selective) recompute;
    `full_parts_s` is what is added to the backward when a block is recomputed in full instead.
    `saved_bytes` is kept per micro-batch in flight under the base recompute, `full_saved_bytes` under full recompute;
    `transient_bytes` is the highest point above the saved tensors while the row runs forward or backward,
    `full_transient_bytes` the same for a recomputed row (its own saved tensors included).
    Schedules that split the backward run `weight_s` of it as an operation of its own, until which `halfway_bytes`
    (`full_halfway_bytes` of a recomputed row) are kept per micro-batch from the input gradient on.
    Where a schedule runs forwards and backwards in pairs, parts are those of a pass in a pair, the least it takes, and
    the spare seconds come on top for a pass of its own.
    """

    forward_parts_s: Array
    backward_parts_s: Array
    weight_s: Array  # the part of backward that is weight gradient
    base_recompute_s: Array  # the part of backward that is base recompute (reported, already inside)
    full_parts_s: Array
    sync_s: Array  # gradient reduction once per step
    gather_s: Array  # parameter gather once per step (ZeRO-1)
    optimizer_s: Array
    static_parts_bytes: Array
    saved_bytes: Array
    full_saved_bytes: Array
    halfway_bytes: Array
    full_halfway_bytes: Array
    transient_bytes: Array
    full_transient_bytes: Array
    step_transient_bytes: Array  # alive only in the optimizer step
    host_bytes: Array  # offloaded states, in the host's memory
    initial_bytes: Array | None = None  # on the device while the model is built, instead of the states
    load_bytes: Array | None = None  # beside the states while a checkpoint is loaded
    stepping_bytes: Array | None = (
        None  # the step's own, where `step_transient_bytes` holds those other phases too
    )
    forward_spare_s: Array | None = None  # what a forward takes beyond its part when it runs in no pair
    backward_spare_s: Array | None = None  # the same for a backward

    @property
    def num_blocks(self) -> int:
        """L, the number of layers that stages are cut from."""
        return int(self.saved_bytes.shape[0]) - 2


@dataclass(frozen=True, slots=True)
class StepRules:
    """How the pieces of a step add up under an engine; constants of one mesh."""

    send_s: float = 0.0  # delay of a boundary tensor between neighbouring stages
    chunk_forward_s: float = 0.0  # what every forward of a chunk spends on sends that nothing hides
    chunk_backward_s: float = 0.0  # the same for a backward
    meeting_s: float = (
        0.0  # what every forward and every backward of a chunk waits for the other ranks of its stage
    )
    sync_overlap: float = 0.0  # share of the last backward that gradient reduction can hide behind
    sync_exposed_min: float = 1.0  # share of gradient reduction that can never hide (the last bucket)
    gather_exposed: float = 1.0  # share of the parameter gather that is not hidden in the next forward
    step_fixed_s: float = 0.0  # per step, outside everything (norm all-reduce, launch, Python)
    straggler_factor: float = 1.0  # expected maximum over all ranks, one number a cluster
    rank_constant_bytes: float = 0.0  # buffers and workspaces of a rank, whatever its layers
    allocated_limit_bytes: float = float("inf")  # the most allocated bytes whose verdict is still `fits`
    host_room_bytes: float = float("inf")  # a device's share of its node's host memory


@dataclass(frozen=True)
class MeshCosts:
    """Everything that the choice of stage boundaries and full recompute needs to know about one mesh."""

    schedule: ScheduleName
    pp: int
    vpp: int
    num_micro_batches: int
    table: LayerTable
    rules: StepRules
    uniform_full: bool = True  # the engine takes one number of fully recomputed layers for all stages
    uniform_chunks: bool = False  # the engine takes only equal numbers of layers per virtual stage
    may_recompute: bool = True  # False: no block is recomputed in full
    least_full: int = 0  # least number of fully recomputed blocks, where one number says it all
    lone_ends: bool = False  # the first and the last virtual stage may hold embedding and head alone

    @cached_property
    def prefix(self) -> "_Prefix":
        """Prefix sums and range maxima of the table, built once."""
        return _Prefix.of(self.table, splits=self.schedule.splits_backward)

    def of_rank(self, rank: int) -> "MeshCosts":
        """The costs as a pipeline rank has them: the same for all, but on mixed devices (mixed_costs.py)."""
        return self

    @property
    def alike(self) -> tuple[tuple["MeshCosts", tuple[int, ...]], ...]:
        """Costs, and the pipeline ranks that have them."""
        return ((self, tuple(range(self.pp))),)

    @property
    def link_s(self) -> Array | None:
        """Seconds of every link between pipeline ranks, (p,), where they are not all `rules.send_s`."""
        return None


@dataclass(frozen=True, slots=True)
class ChunkCosts:
    """Costs of N chunks; every array has shape (N,)."""

    forward_s: Array
    backward_s: Array
    weight_s: Array  # the part of backward that is weight gradient
    sync_s: Array
    gather_s: Array
    optimizer_s: Array
    static_bytes: Array
    saved_bytes: Array  # per micro-batch in flight
    halfway_bytes: Array  # per micro-batch between input gradient and weight gradient; 0 if they are one
    transient_bytes: Array  # above static and saved, at the worst instant; may be negative-free (>= 0)
    step_transient_bytes: Array
    forward_spare_s: Array  # beyond forward_s, of a forward in no pair
    backward_spare_s: Array
    host_bytes: Array  # in the host's memory


@dataclass(frozen=True, slots=True)
class _Prefix:
    """Prefix sums (R + 1,) of a LayerTable's rows, and range maxima for the highest instant of a chunk.

    `freed` is what a row's backward, or input gradient, has given back when it ends (negative where it keeps more).
    """

    forward: Array
    backward: Array
    weight: Array
    full: Array
    sync: Array
    gather: Array
    optimizer: Array
    static: Array
    saved: Array
    full_saved: Array
    halfway: Array
    full_halfway: Array
    freed: Array
    full_freed: Array
    step_transient: Array
    forward_spare: Array
    backward_spare: Array
    host: Array
    base_peak: RangeMax  # transient + prefix of freed up to and with the row
    full_peak: RangeMax

    @classmethod
    def of(cls, table: LayerTable, *, splits: bool) -> "_Prefix":
        kept = 1.0 if splits else 0.0
        saved, full_saved = _prefix(table.saved_bytes), _prefix(table.full_saved_bytes)
        halfway, full_halfway = (_prefix(kept * x) for x in (table.halfway_bytes, table.full_halfway_bytes))
        freed, full_freed = saved - halfway, full_saved - full_halfway
        return cls(
            _prefix(table.forward_parts_s.sum(0)),
            _prefix(table.backward_parts_s.sum(0)),
            _prefix(table.weight_s),
            _prefix(table.full_parts_s.sum(0)),
            _prefix(table.sync_s),
            _prefix(table.gather_s),
            _prefix(table.optimizer_s),
            _prefix(table.static_parts_bytes.sum(0)),
            saved,
            full_saved,
            halfway,
            full_halfway,
            freed,
            full_freed,
            _prefix(table.step_transient_bytes),
            _prefix(_or_none(table.forward_spare_s, table)),
            _prefix(_or_none(table.backward_spare_s, table)),
            _prefix(table.host_bytes),
            RangeMax(table.transient_bytes + freed[1:]),
            RangeMax(table.full_transient_bytes + full_freed[1:]),
        )


def _or_none(spare_s: Array | None, table: LayerTable) -> Array:
    return np.zeros_like(table.weight_s) if spare_s is None else spare_s


def _prefix(values: Array) -> Array:
    return np.concatenate(([0.0], np.cumsum(values)))


def rows_of(blocks_start: Index, blocks_stop: Index, num_blocks: int) -> tuple[Index, Index]:
    """Row segment of virtual stages that hold blocks [start, stop): edges widen to the embedding and the head."""
    start = np.where(blocks_start == 0, 0, blocks_start + 1)
    stop = np.where(blocks_stop == num_blocks, num_blocks + 2, blocks_stop + 1)
    return start, stop


def stage_rows(stages: tuple[int, ...]) -> tuple[Index, Index]:
    """Row segments of every virtual stage, (stages,) each: the first holds the embedding, the last the head."""
    bounds = np.concatenate(([0], np.cumsum(np.asarray(stages, dtype=np.int64)))) + 1
    bounds[0] -= 1
    bounds[-1] += 1
    return bounds[:-1], bounds[1:]


def chunk_costs(mesh: MeshCosts, start: Index, stop: Index, full_layers: Index) -> ChunkCosts:
    """Costs of N chunks of rows [start, stop) whose first `full_layers` blocks are fully recomputed.

    The worst instant of a chunk is max over its rows of (transient of the row - what the rows after it have given back
    of its own micro-batch), so memory = static + in flight x saved + that.
    """
    prefix, num_blocks = mesh.prefix, mesh.table.num_blocks
    first_block = np.maximum(start, 1)
    split = first_block + np.minimum(full_layers, np.minimum(stop, num_blocks + 1) - first_block)

    def total(sums: Array) -> Array:
        difference: Array = sums[stop] - sums[start]
        return difference

    def over_full(sums: Array) -> Array:
        difference: Array = sums[split] - sums[first_block]
        return difference

    def mixed(base: Array, full: Array) -> Array:
        return total(base) + over_full(full) - over_full(base)

    behind = prefix.freed[stop] - prefix.freed[split]
    edge_stop = np.where(start < first_block, start + 1, start)
    edge = prefix.base_peak.query(start, edge_stop) - prefix.freed[first_block]
    highest = np.maximum.reduce(
        [
            prefix.base_peak.query(split, stop) - prefix.freed[stop],
            prefix.full_peak.query(first_block, split) - prefix.full_freed[split] - behind,
            edge - over_full(prefix.full_freed) - behind,
            np.zeros(start.shape),
        ]
    )
    return ChunkCosts(
        total(prefix.forward) + mesh.rules.chunk_forward_s + mesh.rules.meeting_s,
        total(prefix.backward) + over_full(prefix.full) + mesh.rules.chunk_backward_s + mesh.rules.meeting_s,
        total(prefix.weight),
        total(prefix.sync),
        total(prefix.gather),
        total(prefix.optimizer),
        total(prefix.static),
        mixed(prefix.saved, prefix.full_saved),
        mixed(prefix.halfway, prefix.full_halfway),
        highest,
        total(prefix.step_transient),
        total(prefix.forward_spare),
        total(prefix.backward_spare),
        total(prefix.host),
    )


def exposed_sync_s(rules: StepRules, sync_s: Array, window_s: Array) -> Array:
    """Gradient reduction that is left after the last backward: what does not fit in the window, at least one bucket."""
    exposed: Array = np.maximum(rules.sync_exposed_min * sync_s, sync_s - rules.sync_overlap * window_s)
    return exposed


def step_tail_s(rules: StepRules, gather_s: Array, optimizer_s: Array) -> Array:
    """Seconds of a rank after the barrier of gradient clipping: optimizer and exposed parameter gather."""
    tail: Array = optimizer_s + rules.gather_exposed * gather_s
    return tail


def rank_peak_bytes(rules: StepRules, chunks: ChunkCosts, in_flight: Array) -> Array:
    """Highest allocated bytes of a rank: the maximum over the pipeline phase and the optimizer step.

    `chunks` arrays have shape (v, ...), `in_flight` shape (vectors, 2 v): the Pareto-maximal counts of micro-batches
    per chunk that wait for their backward, then of those halfway (see cost_models.schedule.in_flight).
    """
    static = chunks.static_bytes.sum(0) + rules.rank_constant_bytes
    held = np.tensordot(
        in_flight, np.concatenate((chunks.saved_bytes, chunks.halfway_bytes)), axes=(1, 0)
    ).max(0)
    running = static + held + chunks.transient_bytes.max(0)
    stepping = static + chunks.step_transient_bytes.sum(0)
    peak: Array = np.maximum(running, stepping)
    return peak
