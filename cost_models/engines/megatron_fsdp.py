"""Megatron-FSDP: ZeRO 2 and 3 inside Megatron-LM, with communication units that run ahead.

Sources: megatron/core/distributed/fsdp/src/megatron_fsdp (megatron_fsdp.py, param_and_grad_buffer.py), core 0.16 and
later.
`no_shard`, `optim`, `optim_grads` and `optim_grads_params` are ZeRO 0 to 3.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from cost_models.engines.base import RowInstants, StateBytes, SyncPlan
from cost_models.engines.options import MegatronOptions
from cost_models.mesh import MeshBatch
from cost_models.units import Num

STRATEGIES: Final = ("no_shard", "optim", "optim_grads", "optim_grads_params")
"""Names of --data-parallel-sharding-strategy, by ZeRO stage."""

BUFFERED_UNITS: Final = 2.0
"""Units whose parameters and gradients have buffers under --fsdp-double-buffer."""


def fsdp_states(state: StateBytes, ways: Num, meshes: MeshBatch) -> StateBytes:
    """States of ZeRO 0 and 1, with gradients divided from stage 2 and weights at stage 3."""
    return replace(
        state,
        weights=state.weights / np.where(meshes.zero == 3, ways, 1.0),
        gradients=state.gradients / np.where(meshes.zero >= 2, ways, 1.0),
    )


def fsdp_plan(plan: SyncPlan, weight: float, gradient: float, meshes: MeshBatch) -> SyncPlan:
    """Reductions of every micro-batch from stage 2, gathers before every forward and backward at stage 3."""
    zero = meshes.zero
    return replace(
        plan,
        reduce_scatter=np.where(zero == 1, plan.reduce_scatter, 0.0),
        all_gather=np.where(zero == 3, 0.0, plan.all_gather),
        micro_reduce=np.where(zero >= 2, gradient, 0.0),
        forward_gather=np.where(zero == 3, weight, 0.0),
        backward_gather=np.where(zero == 3, weight, 0.0),
    )


def fsdp_instants(
    rows: RowInstants, gradient: float, options: MegatronOptions, meshes: MeshBatch
) -> RowInstants:
    """Gathered units, the embedding and the head, and gradients that wait for their reduction.

    `rows.gathered` comes with a row's weights as they are gathered and its gradients. Only layers are units: the
    embedding's and the head's weights stay gathered through a step. A unit's weights are gathered with as many of the
    next ones as half the communication unit holds, its gradients wait until a whole communication unit is in the queue;
    with double buffers two units of each are held.
    """
    layers, blocks = list(rows.layers), rows.elements[1:-2]
    own = np.where(meshes.zero >= 2, gradient, 0.0) * rows.trained
    weights = rows.gathered - own
    largest = blocks.max(axis=0) if len(blocks) else np.zeros(meshes.size)
    unit = np.maximum(options.communication_unit_elements, 2.0 * largest)
    whole = np.maximum(rows.elements[layers].sum(0), 1.0)
    root = weights[0] + weights[-1]
    inner = np.maximum(weights[layers].sum(0) - root, 0.0) / meshes.pp
    ahead = BUFFERED_UNITS * largest if options.fsdp_double_buffer else largest + unit / 2.0
    queue = BUFFERED_UNITS * largest if options.fsdp_double_buffer else unit
    share = np.minimum(ahead / np.maximum(whole - rows.elements[0] - rows.elements[-1], 1.0), 1.0)
    gathered = root + np.minimum(inner, share * inner * meshes.pp)
    waiting = np.minimum(own[layers].sum(0) / meshes.pp, queue * np.where(meshes.zero >= 2, gradient, 0.0))
    return replace(
        rows,
        gathered=np.broadcast_to(gathered, rows.gathered.shape).copy(),
        own=np.minimum(own, waiting),
        waiting=waiting,
    )
