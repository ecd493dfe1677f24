"""Priced rows of a batch -> what stage boundaries are chosen from (`MeshCosts`), one mesh at a time."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cost_models.chunk import TIME_CAUSES, LayerTable, MeshCosts, StepRules
from cost_models.communication import Network, Span, collective_seconds, members_inside
from cost_models.device_memory import device_memory, workspace_bytes
from cost_models.hiding import Hiding, hiding
from cost_models.host import host_room_bytes
from cost_models.input_pipeline import input_seconds
from cost_models.meetings import meeting_seconds
from cost_models.mesh import MeshBatch
from cost_models.operators.base import Collective
from cost_models.overlap import expected_maximum_factor
from cost_models.pricing import PricedRows, Pricer
from cost_models.schedule import in_flight
from cost_models.schedule.names import ScheduleName
from cost_models.states import RowStates

GRADIENT_NORM_BYTES = 4.0
STEP_OVERHEAD_S = 2e-3
"""[Empirical] host work of a step outside the schedule (data hand-over, loss logging, clipping launches): about 2 ms,
to be refitted from measured runs."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """Constants of each mesh of a batch, arrays (B,)."""

    send_s: np.ndarray
    step_fixed_s: np.ndarray
    limit_bytes: np.ndarray
    workspace_bytes: np.ndarray
    hiding: Hiding
    meeting_s: np.ndarray


def batch_rules(pricer: Pricer, priced: PricedRows) -> BatchRules:
    """Boundary sends, per-step constants and the memory limit (up to `fits`, or to `at_risk`) of every mesh."""
    meshes = priced.meshes
    send = boundary_seconds(pricer, priced)
    fixed = fixed_seconds(meshes, pricer.network) + pricer.engine.step_seconds(meshes)
    fixed = fixed + input_seconds(pricer.model, pricer.cluster, pricer.job, meshes)
    limit, workspaces = memory_limits(pricer, meshes)
    meeting = meeting_seconds(meshes, pricer.network, pricer.engine.options, pricer.job)
    return BatchRules(send, fixed, limit, workspaces, hiding(pricer, priced), meeting)


def memory_limits(pricer: Pricer, meshes: MeshBatch) -> tuple[np.ndarray, np.ndarray]:
    """Most bytes that a rank may allocate, and those beside its layers' tensors; neither depends on recompute, (B,)."""
    memory = device_memory(pricer.engine, pricer.cluster.device, pricer.job, meshes)
    limit = memory.possible_limit_bytes if pricer.allow_at_risk else memory.allocated_limit_bytes
    return limit, workspace_bytes(pricer.engine, pricer.cluster.device, pricer.model, pricer.job, meshes)


def boundary_seconds(pricer: Pricer, priced: PricedRows) -> np.ndarray:
    """Mean seconds of a send over a pipeline's boundaries, (B,): with m stages in a domain p / m - 1 of p - 1 cross."""
    meshes = priced.meshes
    stages = Span(meshes.pp, meshes.stage_stride)
    together = members_inside(stages, pricer.network)
    near = Span(np.where(together > 1, together, meshes.pp), meshes.stage_stride)
    inside, outside = (send_seconds(pricer, priced, span, pricer.network) for span in (near, stages))
    crossing = (meshes.pp / together - 1.0) / np.maximum(meshes.pp - 1.0, 1.0)
    average: np.ndarray = inside + crossing * (outside - inside)
    return average


def send_seconds(pricer: Pricer, priced: PricedRows, neighbour: Span, between: Network) -> np.ndarray:
    """Seconds of a boundary tensor's way to a neighbouring stage over a network, and of its gathering there, (B,)."""
    meshes = priced.meshes
    boundary = priced.work.boundary_bytes[1:-1].max(axis=0)
    ways = pricer.engine.send_ways(meshes)
    send = collective_seconds(Collective.SEND_RECEIVE, boundary / ways, neighbour, between)
    arrived = Span(np.where(ways > 1, meshes.tp, 1), np.ones_like(meshes.tp))
    send = send + collective_seconds(Collective.ALL_GATHER, boundary, arrived, pricer.network)
    return np.broadcast_to(np.asarray(send), (meshes.size,))


def fixed_seconds(meshes: MeshBatch, network: Network) -> np.ndarray:
    """Seconds of a step outside the schedule: the gradient norm over all ranks, and the host, (B,)."""
    world = Span(meshes.tp * meshes.cp * meshes.pp * meshes.dp, np.ones_like(meshes.tp))
    norm = collective_seconds(Collective.ALL_REDUCE, GRADIENT_NORM_BYTES, world, network)
    return np.broadcast_to(np.asarray(norm) + STEP_OVERHEAD_S, (meshes.size,))


def mesh_costs(pricer: Pricer, priced: PricedRows, rules: BatchRules, index: int) -> MeshCosts:
    """The costs of mesh `index` of a batch, expanded to one line per layer."""
    meshes = priced.meshes
    space = pricer.engine.space(pricer.model, pricer.job)
    held_more = _held_more(meshes, index, pricer.job.global_batch)
    return MeshCosts(
        schedule=meshes.schedule_name(index),
        pp=int(meshes.pp[index]),
        vpp=int(meshes.vpp[index]),
        num_micro_batches=int(meshes.micro_batches(pricer.job.global_batch)[index]),
        table=_in_pairs(priced, rules, index, _layer_table(priced, index, held_more)),
        rules=_step_rules(pricer, meshes, rules, index),
        uniform_full=space.uniform_full,
        uniform_chunks=space.uniform_chunks,
        lone_ends=space.lone_ends,
    )


def _in_pairs(priced: PricedRows, rules: BatchRules, index: int, table: LayerTable) -> LayerTable:
    """The table of a mesh that runs forwards and backwards in pairs: what expert exchanges hide is taken off."""
    share = float(rules.hiding.paired_share[index])
    if share == 0.0:
        return table
    forward_s, backward_s = rules.hiding.spare_s[:, list(priced.rows.layers), index]
    forward, backward = table.forward_parts_s.copy(), table.backward_parts_s.copy()
    place = TIME_CAUSES.index("ep_communication")
    forward[place] -= share * forward_s
    backward[place] -= share * backward_s
    shorter = replace(table, forward_parts_s=forward, backward_parts_s=backward)
    if priced.meshes.schedule_name(index) is not ScheduleName.DUALPIPE_V:
        return shorter
    return replace(shorter, forward_spare_s=forward_s, backward_spare_s=backward_s)


def _layer_table(priced: PricedRows, index: int, held_more: float) -> LayerTable:
    lines = np.asarray(priced.rows.layers)
    work, states = priced.work, priced.states

    def line(values: np.ndarray) -> np.ndarray:
        chosen: np.ndarray = values[..., index].take(lines, axis=-1)
        return chosen

    forward, base = line(work.forward_parts_s), line(work.base_parts_s)
    return LayerTable(
        forward_parts_s=forward,
        backward_parts_s=line(work.backward_parts_s),
        weight_s=line(work.weight_s),
        base_recompute_s=base.sum(0),
        full_parts_s=forward - base - line(work.spared_parts_s),
        sync_s=line(states.sync_s),
        gather_s=line(states.gather_s),
        optimizer_s=line(states.optimizer_s),
        static_parts_bytes=line(states.static_parts_bytes),
        saved_bytes=line(work.saved_bytes),
        full_saved_bytes=line(work.full_saved_bytes),
        halfway_bytes=line(work.halfway_bytes),
        full_halfway_bytes=line(work.halfway_bytes),
        transient_bytes=_beside_head(priced, index, line(work.transient_bytes), 0),
        full_transient_bytes=_beside_head(priced, index, line(work.full_transient_bytes), 1),
        **_outside_the_schedule(states, line),
        host_bytes=line(states.host_bytes) + held_more * line(work.host_bytes),
    )


def _held_more(meshes: MeshBatch, index: int, global_batch: int) -> float:
    """Micro-batches beyond one whose activations rest on the host at once, of the chunk and rank that holds most."""
    if meshes.key.activations.kind == "none":
        return 0.0
    micro, pp, vpp = (int(n[index]) for n in (meshes.micro_batches(global_batch), meshes.pp, meshes.vpp))
    vectors = in_flight(meshes.schedule_name(index), pp, vpp, micro).vectors
    return float(max(max(map(max, of_rank)) for of_rank in vectors)) - 1.0


def _outside_the_schedule(
    states: RowStates, line: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """Bytes of the step, of building the model and of loading it, and the largest of them above the states."""
    stepping, initial, load = (
        line(values) for values in (states.step_transient_bytes, states.initial_bytes, states.load_bytes)
    )
    static = line(states.static_parts_bytes).sum(0)
    return {
        "step_transient_bytes": np.maximum.reduce([stepping, load, initial - static]),
        "stepping_bytes": stepping,
        "initial_bytes": initial,
        "load_bytes": load,
    }


def _beside_head(priced: PricedRows, index: int, transient: np.ndarray, kind: int) -> np.ndarray:
    """The last block runs backward while the head's gradients are still being reduced (ZeRO 2 and 3), or beside logits
    that the engine keeps."""
    if priced.kept_logits_bytes is not None:
        transient[-2:] += priced.kept_logits_bytes[index]
    if priced.unit_backward is None or priced.meshes.zero[index] < 2:
        return transient
    backward = priced.unit_backward[kind, priced.rows.blocks[-1], index]
    transient[-2] = max(transient[-2], backward + priced.states.units.reduction[-1, index])
    return transient


def _step_rules(pricer: Pricer, meshes: MeshBatch, rules: BatchRules, index: int) -> StepRules:
    overlap = pricer.engine.overlap()
    send = float(rules.send_s[index])
    shown = send * (overlap.send_shown if int(meshes.vpp[index]) > 1 else overlap.send_shown_plain)
    return StepRules(
        send_s=send,
        chunk_forward_s=shown,
        chunk_backward_s=shown,
        meeting_s=float(rules.meeting_s[index]),
        sync_overlap=float(rules.hiding.sync_overlap[index]),
        sync_exposed_min=float(rules.hiding.sync_exposed_min[index]),
        gather_exposed=float(rules.hiding.gather_exposed[index]),
        step_fixed_s=float(rules.step_fixed_s[index]),
        straggler_factor=straggler_factor(pricer),
        rank_constant_bytes=float(rules.workspace_bytes[index]),
        allocated_limit_bytes=float(rules.limit_bytes[index]),
        host_room_bytes=host_room_bytes(pricer.cluster),
    )


def straggler_factor(pricer: Pricer) -> float:
    """Expected maximum over all devices of the request, one constant for every mesh."""
    return float(expected_maximum_factor(pricer.cluster.num_devices, pricer.network.noise))
