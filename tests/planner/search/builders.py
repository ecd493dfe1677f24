"""Meshes for tests of the search: random small ones, and large ones with the shape of published models."""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import LayerTable, MeshCosts, StepRules
from cost_models.schedule import ScheduleName, in_flight


@dataclass(frozen=True)
class Shape:
    """Schedule and sizes of a mesh."""

    schedule: ScheduleName
    pp: int
    vpp: int
    num_micro_batches: int
    num_blocks: int


def table_of(block_kind: np.ndarray, kinds: np.ndarray, edges: np.ndarray) -> LayerTable:
    """Rows from `kinds` (13, n) by kind of block, between the two columns of `edges` (13, 2)."""
    rows = np.concatenate((edges[:, :1], kinds[:, block_kind], edges[:, 1:]), axis=1)
    zero = np.zeros_like(rows[0])

    def parts(values: np.ndarray, causes: int) -> np.ndarray:
        return np.stack([values] + [zero] * (causes - 1))

    return LayerTable(
        forward_parts_s=parts(rows[0], 6),
        backward_parts_s=parts(rows[1], 6),
        weight_s=zero,
        base_recompute_s=zero,
        full_parts_s=parts(rows[2], 6),
        sync_s=rows[3],
        gather_s=rows[4],
        optimizer_s=rows[5],
        static_parts_bytes=parts(rows[6], 3),
        saved_bytes=rows[7],
        full_saved_bytes=rows[8],
        halfway_bytes=rows[7],
        full_halfway_bytes=rows[7],
        transient_bytes=rows[9],
        full_transient_bytes=rows[10],
        step_transient_bytes=rows[11],
        host_bytes=zero,
    )


def random_shape(rng: np.random.Generator) -> Shape:
    """A small legal point with at most 8 blocks, 4 ranks, 2 chunks and 8 micro-batches."""
    schedule = ScheduleName(rng.choice(["gpipe", "1f1b", "1f1b", "interleaved"]))
    if schedule is ScheduleName.INTERLEAVED:
        pp = int(rng.integers(2, 5))
        vpp = 2
        micro_batches = pp * int(rng.integers(1, 8 // pp + 1))
    else:
        pp, vpp = int(rng.integers(1, 5)), 1
        micro_batches = int(rng.integers(1, 9))
    num_blocks = int(rng.integers(pp * vpp, max(9, pp * vpp + 1)))
    return Shape(schedule, pp, vpp, micro_batches, num_blocks)


def random_mesh(rng: np.random.Generator) -> MeshCosts:
    """A small mesh with uneven rows, edges, sync, tails, and a memory limit that often binds."""
    shape = random_shape(rng)
    num_kinds = int(rng.integers(1, 4))
    kinds, edges = rng.uniform(0.2, 3.0, (12, num_kinds)), rng.uniform(0.0, 3.0, (12, 2))
    for rows in (kinds, edges):
        rows[2] = rows[0] * rng.uniform(0.5, 1.0)
        rows[3:6] *= rng.choice([0.0, 1.0, 4.0])
        rows[8] = rows[7] * rng.uniform(0.05, 0.3)
        rows[10] += rows[7]
    mesh = MeshCosts(
        shape.schedule,
        shape.pp,
        shape.vpp,
        shape.num_micro_batches,
        table_of(rng.integers(0, num_kinds, shape.num_blocks), kinds, edges),
        StepRules(
            send_s=float(rng.choice([0.0, 0.1, 1.0])),
            sync_overlap=float(rng.choice([0.0, 0.5, 1.0])),
            sync_exposed_min=float(rng.uniform(0.0, 1.0)),
            gather_exposed=float(rng.uniform(0.0, 1.0)),
            step_fixed_s=float(rng.choice([0.0, 2.0])),
            straggler_factor=float(rng.choice([1.0, 1.05])),
            rank_constant_bytes=float(rng.uniform(0.0, 1.0)),
        ),
        uniform_full=bool(rng.integers(0, 2)),
        uniform_chunks=bool(rng.random() < 0.15) and shape.num_blocks % (shape.pp * shape.vpp) == 0,
    )
    return with_limit(mesh, float(rng.choice([0.5, 0.8, 1.0, 1.3, np.inf])))


def with_limit(mesh: MeshCosts, share: float) -> MeshCosts:
    """Limit the bytes to `share` of what an even split needs on its fullest rank, roughly, without recompute."""
    table = mesh.table
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    most = max(flight.peak_total(rank) for rank in range(mesh.pp)) / mesh.vpp
    static = float(table.static_parts_bytes.sum()) / mesh.pp
    saved = float(table.saved_bytes.sum()) / mesh.pp
    limit = (
        share * (static + most * saved + float(table.transient_bytes.max())) + mesh.rules.rank_constant_bytes
    )
    return replace(mesh, rules=replace(mesh.rules, allocated_limit_bytes=limit))


def large_mesh(shape: Shape, *, dense_first: int | None = None, memory_share: float = np.inf) -> MeshCosts:
    """A mesh like those of published models: blocks of 4 + 8 ms, or `dense_first` of those and then 1.7 times that.

    The embedding is light, the head worth about two thirds of a block; sync, optimizer and sends are what a
    data-parallel group of 8 to 64 ranks and 400 Gb/s links make of them.
    """
    heavy = 1.0 if dense_first is None else 1.7
    dense = np.array([4e-3, 8e-3, 4e-3, 4e-3, 2e-3, 1e-3, 2e9, 1e9, 6e7, 5e8, 1.5e9, 1e8])
    kinds = np.stack((dense, dense * heavy), axis=1)
    kinds[6, 1] *= 2.0
    embedding = np.array([2e-4, 3e-4, 0, 5e-3, 2.5e-3, 1.2e-3, 2.5e9, 6e7, 6e7, 1e8, 1e8, 1e8])
    head = np.array([2.7e-3, 5.3e-3, 0, 5e-3, 2.5e-3, 1.2e-3, 2.5e9, 5e8, 5e8, 3e9, 3e9, 1e8])
    kind = (np.arange(shape.num_blocks) >= (dense_first or 0)).astype(np.int64)
    mesh = MeshCosts(
        shape.schedule,
        shape.pp,
        shape.vpp,
        shape.num_micro_batches,
        table_of(kind, kinds, np.stack((embedding, head), axis=1)),
        StepRules(
            send_s=2e-4, sync_overlap=0.8, sync_exposed_min=0.1, step_fixed_s=5e-3, straggler_factor=1.02
        ),
    )
    return mesh if np.isinf(memory_share) else with_limit(mesh, memory_share)
