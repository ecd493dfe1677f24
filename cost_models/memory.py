"""One pipeline rank -> its peak bytes, by cause and by phase.

Peak = static + saved tensors of the micro-batches in flight + the highest transient instant, as a maximum over phases
(forward and backward with the loss, optimizer step, initialisation), never a sum of maxima.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.chunk import STATIC_CAUSES, Array, Index, MeshCosts, chunk_costs, stage_rows
from cost_models.schedule import in_flight
from cost_models.step import virtual_stage

OPTIMIZER_STEP, BACKWARD, LOSS, INITIALISATION = "optimizer_step", "backward", "loss", "initialisation"
CHECKPOINT_LOAD = "checkpoint_load"


@dataclass(frozen=True, slots=True)
class RankMemory:
    """Allocated bytes of one pipeline rank; `by_cause` is taken at the peak instant and sums to the peak."""

    peak_bytes: float
    peak_phase: str
    by_cause: dict[str, float]
    by_phase: dict[str, float]
    host_bytes: float = 0.0  # offloaded, beside the allocated bytes
    by_phase_cause: dict[str, dict[str, float]] = field(default_factory=dict)  # sums to by_phase


def rank_memory(
    mesh: MeshCosts, stages: tuple[int, ...], full_layers: tuple[int, ...], rank: int
) -> RankMemory:
    """Memory of one rank that holds `stages[chunk * pp + rank]` blocks per chunk."""
    where = virtual_stage(mesh)[rank]
    start, stop = (rows[where] for rows in stage_rows(stages))
    full = np.asarray(full_layers, dtype=np.int64)[where]
    chunks = chunk_costs(mesh, start, stop, full)
    flight = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches).split_vectors[rank]
    kept = np.concatenate((chunks.saved_bytes, chunks.halfway_bytes))
    activations = float((np.asarray(flight, dtype=float) @ kept).max())
    transient = float(chunks.transient_bytes.max())
    static = _static_by_cause(mesh, start, stop)
    constant = mesh.rules.rank_constant_bytes
    outside = _outside_the_schedule(mesh, start, stop)
    last = int(np.argmax(chunks.transient_bytes))
    in_loss = _peaks_in_loss(mesh, int(start[last]), int(stop[last]), int(full[last]))
    running = LOSS if in_loss else BACKWARD
    by_phase_cause = _by_phase_cause(static, constant, outside, (running, activations, transient))
    phases = {name: sum(causes.values()) for name, causes in by_phase_cause.items()}
    order = (running, OPTIMIZER_STEP, INITIALISATION, CHECKPOINT_LOAD)
    phase = max(order, key=lambda name: phases.get(name, 0.0))
    causes = by_phase_cause[phase]
    host = float(sum(mesh.table.host_bytes[a:b].sum() for a, b in zip(start, stop, strict=True)))
    return RankMemory(sum(causes.values()), phase, causes, phases, host, by_phase_cause)


def _by_phase_cause(
    static: dict[str, float],
    constant: float,
    outside: dict[str, float],
    schedule: tuple[str, float, float],
) -> dict[str, dict[str, float]]:
    """Bytes of every phase by cause; `schedule` names the phase of the schedule's peak, its activations and transient.

    While the model is built there are its weights alone, or all states where they need more.
    """
    running, activations, transient = schedule
    at_rest = static | {"activations": 0.0, "transient": 0.0, "workspaces": constant}
    built = at_rest | dict.fromkeys(static, 0.0) | {"weights": outside[INITIALISATION]}
    loading = outside[CHECKPOINT_LOAD]
    return {
        INITIALISATION: built if sum(built.values()) > sum(at_rest.values()) else at_rest,
        running: at_rest | {"activations": activations, "transient": transient},
        OPTIMIZER_STEP: at_rest | {"transient": outside[OPTIMIZER_STEP]},
    } | ({CHECKPOINT_LOAD: at_rest | {"transient": loading}} if loading else {})


def _outside_the_schedule(mesh: MeshCosts, start: Index, stop: Index) -> dict[str, float]:
    """Bytes of a rank's chunks in the step and in a load, above the states, and while the model is built."""
    table = mesh.table
    stepping = table.step_transient_bytes if table.stepping_bytes is None else table.stepping_bytes

    def total(values: Array | None) -> float:
        if values is None:
            return 0.0
        return float(sum(values[a:b].sum() for a, b in zip(start, stop, strict=True)))

    return {
        OPTIMIZER_STEP: total(stepping),
        INITIALISATION: total(table.initial_bytes),
        CHECKPOINT_LOAD: total(table.load_bytes),
    }


def _static_by_cause(mesh: MeshCosts, start: Index, stop: Index) -> dict[str, float]:
    """Weights, gradients and optimizer bytes of the rank's chunks."""
    sums = [mesh.table.static_parts_bytes[:, a:b].sum(1) for a, b in zip(start, stop, strict=True)]
    total = np.sum(sums, axis=0)
    return {cause: float(total[i]) for i, cause in enumerate(STATIC_CAUSES)}


def _peaks_in_loss(mesh: MeshCosts, start: int, stop: int, full: int) -> bool:
    """Whether a chunk's highest instant is the head's, which comes after everything is saved."""
    table = mesh.table
    if stop <= table.num_blocks + 1:
        return False
    first = max(start, 1)
    blocks = np.arange(first, table.num_blocks + 1)
    recomputed = blocks < first + full
    transient = np.where(recomputed, table.full_transient_bytes[blocks], table.transient_bytes[blocks])
    saved = np.where(recomputed, table.full_saved_bytes[blocks], table.saved_bytes[blocks])
    behind = np.concatenate((np.cumsum(saved[::-1])[::-1][1:], [0.0])) + table.saved_bytes[-1]
    return bool(table.transient_bytes[-1] >= (transient - behind).max(initial=0.0))
