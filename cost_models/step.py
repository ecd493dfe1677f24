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
    stage_rows,
    step_tail_s,
)
from cost_models.schedule import PipelineDurations, Timeline, in_flight, simulate, stage_table


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


def virtual_stage(mesh: MeshCosts) -> Index:
    """Global index of the virtual stage held by (rank, chunk), shape (p, v)."""
    return stage_table(mesh.schedule, mesh.pp, mesh.vpp)


def placed_chunk_costs(mesh: MeshCosts, start: Index, stop: Index, full_layers: Index) -> ChunkCosts:
    """Costs of chunks of rows [start, stop), arrays of shape (p, v, ...); the fields have the same shape."""
    names = tuple(ChunkCosts.__dataclass_fields__)
    parts = []
    for costs, ranks in mesh.alike:
        of_ranks = [
            values[list(ranks)] if len(ranks) < mesh.pp else values for values in (start, stop, full_layers)
        ]
        found = chunk_costs(costs, *(values.reshape(-1) for values in of_ranks))
        parts.append([getattr(found, name).reshape(of_ranks[0].shape) for name in names])
    if len(parts) == 1:
        return ChunkCosts(*parts[0])
    order = np.argsort([rank for _, ranks in mesh.alike for rank in ranks], kind="stable")
    return ChunkCosts(*(np.concatenate(fields)[order] for fields in zip(*parts, strict=True)))


def durations_of(mesh: MeshCosts, chunks: ChunkCosts) -> PipelineDurations:
    """Seconds of chunks of shape (p, v, ...) for the simulator; recompute goes with the input gradient.

    A pair of a forward and the other chunk's backward takes what both take at their shortest, as one piece of work.
    """
    if not mesh.schedule.splits_backward:
        return PipelineDurations(
            chunks.forward_s, chunks.backward_s, send_s=mesh.rules.send_s, link_s=mesh.link_s
        )
    backward_s = chunks.backward_s + chunks.backward_spare_s
    in_pairs = mesh.table.forward_spare_s is not None
    return PipelineDurations(
        chunks.forward_s + chunks.forward_spare_s,
        backward_s,
        send_s=mesh.rules.send_s,
        input_gradient_s=np.maximum(backward_s - chunks.weight_s, 0.0),
        weight_gradient_s=chunks.weight_s,
        link_s=mesh.link_s,
        paired_forward_s=chunks.forward_s + chunks.backward_s[:, ::-1] if in_pairs else None,
        paired_backward_s=np.zeros_like(backward_s) if in_pairs else None,
    )


def sync_window_s(mesh: MeshCosts, chunks: ChunkCosts) -> Array:
    """Seconds of every rank's last backward, (p, ...), behind which its gradients can be reduced as they come."""
    last = chunks.weight_s if mesh.schedule.splits_backward else chunks.backward_s
    window: Array = last.sum(1)
    return window


def after_backward_s(mesh: MeshCosts, chunks: ChunkCosts) -> tuple[Array, Array]:
    """Of every rank, gradient reduction that nothing hides, and optimizer with exposed gather, (p, ...) each."""
    sync, gather, optimizer = (each.sum(1) for each in (chunks.sync_s, chunks.gather_s, chunks.optimizer_s))
    window = sync_window_s(mesh, chunks)
    exposed, tail = np.empty_like(sync), np.empty_like(sync)
    for costs, ranks in mesh.alike:
        here = list(ranks)
        exposed[here] = exposed_sync_s(costs.rules, sync[here], window[here])
        tail[here] = step_tail_s(costs.rules, gather[here], optimizer[here])
    return exposed, tail


def step_costs(mesh: MeshCosts, stages: tuple[int, ...], full_layers: tuple[int, ...]) -> StepCosts:
    """Price `stages` (blocks per virtual stage, in global order) with `full_layers` recomputed in each.

    step = (max over ranks of (last backward + exposed gradient reduction) + max over ranks of (optimizer + gather)
    + fixed) x straggler factor: gradient clipping is a barrier before the optimizer.
    """
    where = virtual_stage(mesh)
    start, stop = stage_rows(stages)
    full = np.asarray(full_layers, dtype=np.int64)
    shaped = placed_chunk_costs(mesh, start[where], stop[where], full[where])
    point = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    timeline = simulate(*point, durations_of(mesh, shaped))
    sync, tail = after_backward_s(mesh, shaped)
    ends = np.asarray(timeline.rank_end_s).reshape(mesh.pp) + sync
    step = (float(ends.max()) + float(tail.max()) + mesh.rules.step_fixed_s) * mesh.rules.straggler_factor
    peaks = rank_peaks(mesh, shaped)
    rules, host = [mesh.of_rank(rank).rules for rank in range(mesh.pp)], shaped.host_bytes.sum(1)
    fits = all(
        peak <= one.allocated_limit_bytes and there <= one.host_room_bytes
        for peak, there, one in zip(peaks, host, rules, strict=True)
    )
    return StepCosts(step, shaped, timeline, sync, tail, peaks, fits)


def rank_peaks(mesh: MeshCosts, chunks: ChunkCosts) -> Array:
    """Highest allocated bytes of every rank, shape (p,), from chunk costs of shape (p, v)."""
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    peaks = [
        rank_peak_bytes(
            mesh.of_rank(rank).rules,
            ChunkCosts(*(getattr(chunks, name)[rank] for name in ChunkCosts.__dataclass_fields__)),
            np.asarray(flight.split_vectors[rank], dtype=np.float64),
        )
        for rank in range(mesh.pp)
    ]
    return np.asarray(peaks, dtype=np.float64)
