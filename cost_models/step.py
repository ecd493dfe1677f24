"""One optimizer step of one mesh with given stages: the schedule's longest path, gradient tails, optimizer."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import (
    Array,
    ChunkCosts,
    Index,
    MeshCosts,
    chunk_costs,
    exposed_sync_s,
    rank_peak_bytes,
    step_tail_s,
)
from cost_models.schedule import PipelineDurations, Timeline, in_flight, simulate


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What a choice of stages costs; arrays over ranks (p,) or over ranks and chunks (p, v)."""

    step_s: float
    chunks: ChunkCosts  # fields of shape (p, v)
    timeline: Timeline
    sync_exposed_s: Array  # (p,)
    tail_s: Array  # (p,) optimizer and exposed gather
    peak_bytes: Array  # (p,)
    fits: bool


def virtual_stage(pp: int, vpp: int) -> Index:
    """Global index of the virtual stage held by (rank, chunk): chunk * pp + rank (Megatron-LM's interleaving)."""
    stage: Index = np.arange(vpp)[None, :] * pp + np.arange(pp)[:, None]
    return stage


def step_costs(mesh: MeshCosts, stages: tuple[int, ...], full_layers: tuple[int, ...]) -> StepCosts:
    """Price `stages` (blocks per virtual stage, in global order) with `full_layers` recomputed in each.

    step = (max over ranks of (last backward + exposed gradient reduction) + max over ranks of (optimizer + gather)
    + fixed) x straggler factor: gradient clipping is a barrier before the optimizer.
    """
    where = virtual_stage(mesh.pp, mesh.vpp)
    bounds = np.concatenate(([0], np.cumsum(np.asarray(stages, dtype=np.int64))))
    full = np.asarray(full_layers, dtype=np.int64)
    flat = where.reshape(-1)
    costs = chunk_costs(mesh, bounds[flat], bounds[flat + 1], full[flat])
    shaped = ChunkCosts(
        *(getattr(costs, name).reshape(where.shape) for name in ChunkCosts.__dataclass_fields__)
    )
    durations = PipelineDurations(shaped.forward_s, shaped.backward_s, send_s=mesh.rules.send_s)
    timeline = simulate(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches, durations)
    sync = exposed_sync_s(mesh.rules, shaped.sync_s.sum(1), shaped.backward_s.sum(1))
    tail = step_tail_s(mesh.rules, shaped.gather_s.sum(1), shaped.optimizer_s.sum(1))
    ends = np.asarray(timeline.rank_end_s).reshape(mesh.pp) + sync
    step = (float(ends.max()) + float(tail.max()) + mesh.rules.step_fixed_s) * mesh.rules.straggler_factor
    peaks = rank_peaks(mesh, shaped)
    fits = bool((peaks <= mesh.rules.allocated_limit_bytes).all())
    return StepCosts(step, shaped, timeline, sync, tail, peaks, fits)


def rank_peaks(mesh: MeshCosts, chunks: ChunkCosts) -> Array:
    """Highest allocated bytes of every rank, shape (p,), from chunk costs of shape (p, v)."""
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    peaks = [
        rank_peak_bytes(
            mesh.rules,
            ChunkCosts(*(getattr(chunks, name)[rank] for name in ChunkCosts.__dataclass_fields__)),
            np.asarray(flight.vectors[rank], dtype=np.float64),
        )
        for rank in range(mesh.pp)
    ]
    return np.asarray(peaks, dtype=np.float64)
