"""The inner problem of one mesh: where to cut its blocks into virtual stages, and how many blocks to recompute in full.

Sets and symbols, used by every module of this package (docs/search_model.md has the whole program):

    i = 0..p-1          pipeline ranks (mesh.pp)
    c = 0..v-1          chunks of a rank (mesh.vpp)
    g = c p + i         virtual stages in global order, N = p v of them
    m                   micro-batches of a step (mesh.num_micro_batches)
    x[g]                first block of virtual stage g; x[0] = 0, x[N] = L, x[g] < x[g+1]
    K[g]                fully recomputed blocks at the front of g; min(K, x[g+1] - x[g]) if the engine takes one K
    F[g], B[g]          forward and backward seconds of g, functions of (x[g], x[g+1], K[g])
    r[i]                gradient reduction of rank i that nothing hides, after its last backward
    o[i]                optimizer and exposed gather of rank i

    minimise   (max_i (end_i + r[i]) + max_i o[i] + fixed) * straggler
    subject to peak bytes of every rank <= limit,

where end_i is the longest path of the schedule's graph to the last operation of rank i.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import (
    Array,
    ChunkCosts,
    Index,
    MeshCosts,
    rank_peak_bytes,
)
from cost_models.schedule import in_flight, simulate
from cost_models.step import after_backward_s, durations_of, placed_chunk_costs, virtual_stage


class InnerStatus(StrEnum):
    """How the search of one mesh ended."""

    OPTIMAL = "optimal"  # the solution is proved to be within the gap
    INFEASIBLE = "infeasible"  # proved: no choice of stages and recomputation fits
    CUT = "cut"  # proved: nothing in this mesh is better than the incumbent by more than the gap
    STOPPED = "stopped"  # out of time; the bound is true but has not met the best step


@dataclass(frozen=True, slots=True)
class InnerSolution:
    """A choice that fits: blocks and fully recomputed blocks per virtual stage in global order, and its step."""

    stages: tuple[int, ...]
    full_layers: tuple[int, ...]
    step_s: float


@dataclass(frozen=True, slots=True)
class InnerResult:
    """What is known of one mesh: the best solution found, and a lower bound on every solution."""

    status: InnerStatus
    solution: InnerSolution | None
    lower_bound_s: float
    rounds: int  # models solved
    wall_s: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Steps of n choices of one mesh, and the bytes of their fullest rank over the limit (negative: room); (n,)."""

    step_s: Array
    excess_bytes: Array

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether every rank stays within the limit."""
        within: NDArray[np.bool_] = self.excess_bytes <= 0.0
        return within


def num_virtual_stages(mesh: MeshCosts) -> int:
    """N, the number of segments that the blocks are cut into."""
    return mesh.pp * mesh.vpp


def has_partition(mesh: MeshCosts) -> bool:
    """Whether the blocks can be cut at all: one for every virtual stage, and equally many if they must be."""
    count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
    return count <= num_blocks and not (mesh.uniform_chunks and num_blocks % count)


def most_full(mesh: MeshCosts) -> int:
    """The largest K that differs from smaller ones: the most blocks that a virtual stage can hold."""
    if not mesh.may_recompute:
        return 0
    count, num_blocks = num_virtual_stages(mesh), mesh.table.num_blocks
    return num_blocks // count if mesh.uniform_chunks else num_blocks - count + 1


def chunks_of(mesh: MeshCosts, stages: Index, full_layers: Index) -> ChunkCosts:
    """Chunk costs of n choices, arrays of shape (n, N) in global order; the fields have shape (p, v, n)."""
    where = virtual_stage(mesh)
    stop = np.cumsum(stages, axis=1)
    # The first and the last virtual stage hold embedding and head, with blocks or without.
    start, stop = stop - stages + 1, stop + 1
    start[:, 0] -= 1
    stop[:, -1] += 1
    return placed_chunk_costs(mesh, start.T[where], stop.T[where], full_layers.T[where])


def of_choices(chunks: ChunkCosts, chosen: NDArray[np.bool_]) -> ChunkCosts:
    """The chunk costs of some of n choices, fields of shape (p, v, n)."""
    return ChunkCosts(*(getattr(chunks, name)[..., chosen] for name in ChunkCosts.__dataclass_fields__))


def excess_bytes(mesh: MeshCosts, chunks: ChunkCosts) -> Array:
    """Peak of each rank less the limit, or what it rests on the host less the room there, shape (p, n)."""
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    peaks = []
    for rank in range(mesh.pp):
        of_rank = ChunkCosts(*(getattr(chunks, name)[rank] for name in ChunkCosts.__dataclass_fields__))
        rules, vectors = mesh.of_rank(rank).rules, np.asarray(flight.split_vectors[rank], dtype=np.float64)
        over = rank_peak_bytes(rules, of_rank, vectors) - rules.allocated_limit_bytes
        peaks.append(np.maximum(over, of_rank.host_bytes.sum(0) - rules.host_room_bytes))
    excess: Array = np.asarray(peaks)
    return excess


def fits_rank(mesh: MeshCosts, chunks: ChunkCosts) -> NDArray[np.bool_]:
    """Whether each rank stays within the limit, shape (p, n)."""
    fits: NDArray[np.bool_] = excess_bytes(mesh, chunks) <= 0.0
    return fits


def price_many(mesh: MeshCosts, stages: Index, full_layers: Index) -> Prices:
    """Steps of n choices at once, equal to `cost_models.step.step_costs` of each; shapes (n, N)."""
    chunks = chunks_of(mesh, stages, full_layers)
    point = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    ends = simulate(*point, durations_of(mesh, chunks)).rank_end_s
    exposed, tail = after_backward_s(mesh, chunks)
    pipeline_s = (ends + exposed).max(axis=0) + tail.max(axis=0)
    return Prices(steps_of(mesh, pipeline_s), np.maximum.reduce(excess_bytes(mesh, chunks), axis=0))


def price_one(mesh: MeshCosts, stages: tuple[int, ...], full_layers: tuple[int, ...]) -> InnerSolution:
    """Step of one choice, whether it fits or not."""
    prices = price_many(mesh, np.array([stages]), np.array([full_layers]))
    return InnerSolution(stages, full_layers, float(prices.step_s[0]))


def steps_of(mesh: MeshCosts, pipeline_s: Array) -> Array:
    """Whole step from the seconds up to the barrier plus the longest tail."""
    step: Array = (pipeline_s + mesh.rules.step_fixed_s) * mesh.rules.straggler_factor
    return step


def step_of(mesh: MeshCosts, pipeline_s: float) -> float:
    """Whole step of one choice or bound."""
    return (pipeline_s + mesh.rules.step_fixed_s) * mesh.rules.straggler_factor


def pipeline_of(mesh: MeshCosts, step_s: float) -> float:
    """Inverse of `step_of`: seconds up to the barrier plus the longest tail."""
    return step_s / mesh.rules.straggler_factor - mesh.rules.step_fixed_s
