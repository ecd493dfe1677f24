"""What a mesh's once-a-step communication and expert exchanges hide behind, as constants of each mesh (B,).

Interference is inside: a hidden second slows the computation beside it down by the share of the slowest tier in use
(`communication.group_interference`), so nothing is free.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.communication import group_interference
from cost_models.mesh import SCHEDULES, MeshBatch
from cost_models.operators.base import Axis
from cost_models.pricing import PricedRows, Pricer
from cost_models.schedule.names import ScheduleName

_EXCHANGE = TIME_CAUSES.index("ep_communication")


@dataclass(frozen=True, slots=True)
class Hiding:
    """Constants of each mesh, and seconds of each row.

    The exposed part of s seconds of gradient reduction beside a window of b seconds is max(c s, s - w b), with
    c = `sync_exposed_min` and w = `sync_overlap`; that of the parameter gather is its `gather_exposed` share.
    `spare_s`, (2, rows, B): what a row's forward and backward take less where they run in a pair, as `paired_share` of
    them do.
    """

    sync_overlap: Array
    sync_exposed_min: Array
    gather_exposed: Array
    spare_s: Array
    paired_share: Array


def hiding(pricer: Pricer, priced: PricedRows) -> Hiding:
    """How much hides under the engine's policy.

    hidden = min((1 - c) s, w b) of a reduction costs i hidden instead of hidden, so that the added time is
    max((c + i (1 - c)) s, s - (1 - i) w b), the same form with other constants. The gather hides behind one forward of
    the rank's chunks: min(1 - c, w F / G) of it, F and G sums over the model, whose ratio is that of an average rank.
    """
    policy, meshes = pricer.engine.overlap(), priced.meshes
    slowed = np.broadcast_to(group_interference(meshes.data_spans()[0], pricer.network), (meshes.size,))
    counts = np.bincount(priced.rows.layers, minlength=len(priced.rows.rows)).astype(float)
    forward_s, gather_s = counts @ priced.work.forward_parts_s.sum(0), counts @ priced.states.gather_s
    beside = policy.gather_overlap * forward_s / np.where(gather_s > 0.0, gather_s, 1.0)
    hidden = np.minimum(1.0 - policy.gather_exposed_min, beside)
    shown = policy.sync_exposed_min
    return Hiding(
        sync_overlap=(1.0 - slowed) * policy.sync_overlap,
        sync_exposed_min=shown + slowed * (1.0 - shown),
        gather_exposed=1.0 - (1.0 - slowed) * hidden,
        spare_s=spare_seconds(pricer, priced),
        paired_share=paired_share(pricer, meshes),
    )


def spare_seconds(pricer: Pricer, priced: PricedRows) -> Array:
    """(2, rows, B) seconds by which a pair shortens the forward and the backward of each row.

    The exchange of one hides behind the computation of the other: (1 - i) min(exchange, w computation). A recomputed
    forward runs in the backward and hides nothing.
    """
    policy, work = pricer.engine.overlap(), priced.work
    forward, backward = work.forward_parts_s, work.backward_parts_s - work.base_parts_s
    if not policy.pair_schedules:
        return np.zeros((2, *forward.shape[1:]))
    kept = 1.0 - group_interference(priced.meshes.span(Axis.EP), pricer.network)
    beside = (backward[0], forward[0])
    each = [
        np.minimum(np.maximum(own[_EXCHANGE], 0.0), policy.pair_overlap * other)
        for own, other in zip((forward, backward), beside, strict=True)
    ]
    spare: Array = kept * np.stack(each)
    return spare


def paired_share(pricer: Pricer, meshes: MeshBatch) -> Array:
    """Share of a mesh's passes that run in pairs, (B,), at most: the operation lists of dualpipe-v say which.

    1F1B and interleaving pair all but the warm-up forwards and one more, on average over the ranks (p - 1) / 2 of m, or
    p - 1 + (v - 1) p of m v (Megatron-LM's combined_1f1b.py; `schedule.operations`).
    """
    schedules = pricer.engine.overlap().pair_schedules
    p, v = meshes.pp.astype(float), meshes.vpp.astype(float)
    m = meshes.micro_batches(pricer.job.global_batch).astype(float)
    warm_up = np.where(v > 1.0, p - 1.0 + (v - 1.0) * p, 0.5 * (p - 1.0))
    steady = np.maximum(1.0 - (warm_up + 1.0) / (m * v), 0.0)
    dual = meshes.schedule == SCHEDULES.index(ScheduleName.DUALPIPE_V)
    runs = np.isin(meshes.schedule, [SCHEDULES.index(schedule) for schedule in schedules])
    share: Array = np.where(runs, np.where(dual, 1.0, steady), 0.0)
    return share
