"""Bytes that a rank sends in a step on every axis of the mesh, summed from the messages that are priced in seconds.

A ring of n ranks sends (n - 1) / n of what an all-gather makes, a reduce-scatter takes or an all-to-all exchanges, and
twice that of what an all-reduce reduces (Thakur et al. 2005, section 4); a send is the whole tensor.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from cost_models.chunk import Array, MeshCosts, stage_rows
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.operators.base import Axis, Collective, Message, Phase
from cost_models.pricing import Pricer
from cost_models.rows import Rows, model_rows
from cost_models.schedule import num_stages, stage_of
from cost_models.specs.strategy import Strategy
from cost_models.step import virtual_stage

ROUNDS: Final = {Collective.ALL_REDUCE: 2.0}
AXES: Final = ("tp", "cp", "ep", "dp", "pp")


def sent_bytes(pricer: Pricer, mesh: MeshCosts, strategy: Strategy) -> Mapping[str, tuple[float, ...]]:
    """Bytes that one device of every pipeline rank sends in a step, by axis; arrays of p numbers."""
    batch = batch_of([strategy], mesh_key(strategy))
    rows = model_rows(pricer.model, pricer.job)
    once, again = _layer_bytes(pricer, rows, batch)
    step, micro = (
        values[..., 0] for values in pricer.states().sent_bytes(rows, batch, pricer.style(batch.key.cp_kind))
    )
    (start, stop), full = stage_rows(strategy.stages), strategy.full_layers()
    lines = np.asarray(rows.layers)
    sent = {axis: np.zeros(strategy.pp) for axis in AXES}
    for rank in range(strategy.pp):
        for stage in virtual_stage(mesh)[rank]:
            here, block = lines[start[stage] : stop[stage]], max(int(start[stage]), 1)
            recomputed = lines[block : block + full[stage]]
            for index, axis in enumerate(("tp", "cp", "ep")):
                each = once[index][here].sum() + again[index][recomputed].sum()
                sent[axis][rank] += mesh.num_micro_batches * each
            sent["dp"][rank] += step[here].sum() + mesh.num_micro_batches * micro[here].sum()
        sent["pp"][rank] = _boundary_bytes(pricer, batch, strategy, rank) * mesh.num_micro_batches
    return {axis: tuple(float(value) for value in values) for axis, values in sent.items()}


def _layer_bytes(pricer: Pricer, rows: Rows, batch: MeshBatch) -> tuple[Array, Array]:
    """Bytes (tp, cp and ep, rows) of one micro-batch: forward, backward and base recompute; and a forward alone."""
    style = pricer.style(batch.key.cp_kind)
    once, again = np.zeros((2, 3, len(rows.rows)))
    for index, row in enumerate(rows.rows):
        for layer in row:
            walk = pricer.walk(layer, batch, style)
            for message, repeats in zip(walk.messages, walk.message_again, strict=True):
                axis = {Axis.TP: 0, Axis.CP: 1, Axis.CP_INNER: 1, Axis.CP_OUTER: 1}.get(message.axis, 2)
                sent = layer.count * _sent(message, batch)
                forward = message.phase is Phase.FORWARD
                once[axis, index] += sent * (2.0 if forward and repeats else 1.0)
                again[axis, index] += sent if forward and not repeats else 0.0
    return once, again


def _sent(message: Message, batch: MeshBatch) -> float:
    """Bytes that one rank sends for a message."""
    size = float(np.asarray(batch.span(message.axis).size).reshape(-1)[0])
    payload = float(np.asarray(message.bytes * message.count, dtype=float).reshape(-1)[0])
    if message.collective is Collective.SEND_RECEIVE:
        return payload if size > 1.0 else 0.0
    return payload * ROUNDS.get(message.collective, 1.0) * (1.0 - 1.0 / size)


def _boundary_bytes(pricer: Pricer, batch: MeshBatch, strategy: Strategy, rank: int) -> float:
    """Bytes of one micro-batch that a device hands to neighbouring stages, both ways."""
    if strategy.pp == 1:
        return 0.0
    boundary = float(pricer.work(batch).boundary_bytes[1:-1].max())
    each = boundary / float(np.asarray(pricer.engine.send_ways(batch)).reshape(-1)[0])
    stages = num_stages(strategy.schedule, strategy.pp, strategy.vpp)
    held = [stage_of(strategy.schedule, strategy.pp, rank, chunk) for chunk in range(strategy.vpp)]
    return each * sum((stage > 0) + (stage + 1 < stages) for stage in held)
