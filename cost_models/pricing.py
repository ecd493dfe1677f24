"""Seconds and bytes of every row of a model for a batch of meshes; arrays (…, rows, B).

Layers see a mesh only through (tp, cp, ep, etp, sp, micro-batch) and the placement of their groups, so kernels and
messages are counted and priced once per distinct point and spread to the meshes afterwards.
"""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.activation_offload import offload_activations, window_of, with_copies
from cost_models.chunk import TIME_CAUSES, Array
from cost_models.communication import Network, expert_groups, message_seconds, stack_messages
from cost_models.engines import Engine
from cost_models.host import host_rates
from cost_models.host_launches import PassParts, add_launches
from cost_models.layer_walk import LayerWalk, walk_layer
from cost_models.mesh import MeshBatch, distinct_points
from cost_models.module_offload import moved_bytes
from cost_models.operators.base import Axis, Phase, Shard, Style
from cost_models.overlap import exposed
from cost_models.roofline import Efficiency, kernel_seconds, stack_kernels
from cost_models.row_work import (
    MEMORY_FIELDS,
    TRANSIENT_PLACES,
    RowWork,
    add_memory,
    left_alone,
    with_reference,
)
from cost_models.rows import RowLayer, Rows, model_rows, stack_shard
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.states import RowStates, StatePricer
from cost_models.unit_instants import PassBytes, unit_transients
from cost_models.units import Num

_CAUSE_OF_AXIS = {
    Axis.TP: TIME_CAUSES.index("tp_communication"),
    **dict.fromkeys((Axis.CP, Axis.CP_INNER, Axis.CP_OUTER), TIME_CAUSES.index("cp_communication")),
    Axis.EP: TIME_CAUSES.index("ep_communication"),
    Axis.ETP: TIME_CAUSES.index("ep_communication"),
}
_DATA = TIME_CAUSES.index("dp_communication")


@dataclass(frozen=True, slots=True)
class PricedRows:
    """Everything a layer table is made of, for B meshes."""

    meshes: MeshBatch
    rows: Rows
    work: RowWork
    states: RowStates
    unit_backward: Array | None = None
    """(2, rows, B) highest instants of backward without the reduction before it, base and recomputed in full."""
    kept_logits_bytes: Array | None = None
    """(B,) what the loss saved and the engine keeps to the end of the last stage's backward."""


@dataclass(frozen=True, slots=True)
class Pricer:
    """Prices rows of one model on one cluster under one engine."""

    model: ModelSpec
    cluster: ClusterSpec
    job: Job
    engine: Engine
    efficiency: Efficiency
    network: Network
    allow_at_risk: bool = False
    """Whether layouts whose memory is at risk still count as fitting."""

    def style(self, cp_kind: str) -> Style:
        """How the engine runs operators for the job, a frozen model beside it included."""
        style, reference = self.engine.style(self.job, cp_kind), self.job.reference
        if not reference.forwards:
            return style
        return replace(style, reference_logits=2 if reference.keeps_logits else 1)

    def price(
        self, meshes: MeshBatch, work: RowWork | None = None, states: RowStates | None = None
    ) -> PricedRows:
        """Price a batch of meshes; `work` and `states` are `work(meshes)` and `row_states(meshes)` where known."""
        rows = model_rows(self.model, self.job)
        style = self.style(meshes.key.cp_kind)
        work = self.work(meshes) if work is None else work
        states = self.row_states(meshes) if states is None else states
        if self.job.reference.forwards:
            work = with_reference(work, self.job.reference.forwards)
        work = self._with_gathers(work, states, meshes)
        if style.checkpoints_on_host:
            link_s = host_rates(self.cluster).link_seconds(2.0 * work.boundary_bytes)
            shown_s = self._beside(link_s, window_of(work), self.engine.overlap().micro_overlap)
            work = with_copies(work, shown_s, work.boundary_bytes)
        if style.checkpoints_on_host or meshes.key.activations.kind != "none":
            states = replace(states, host_bytes=states.host_bytes + work.host_bytes)
        work = self._with_outputs(work, meshes)
        if not self.engine.shards_by_unit:
            kept = work.saved_bytes[-1] if self.engine.keeps_logits else None
            return PricedRows(meshes, rows, work, states, kept_logits_bytes=kept)
        work, backward = self._by_unit(work, states, meshes, rows.blocks[-1])
        return PricedRows(meshes, rows, work, states, backward)

    def work(self, meshes: MeshBatch) -> RowWork:
        """Work of every row alone, without what parameter states add to it; arrays (…, rows, B)."""
        points, inverse = distinct_points(meshes)
        style = self.style(meshes.key.cp_kind)
        rows = model_rows(self.model, self.job)
        work = left_alone(self._work(rows, points, style), rows.kept)
        moved = meshes.key.activations
        if moved.modules:
            work = replace(work, host_bytes=self._module_bytes(rows, points, style, moved.modules))
        if moved.kind != "none":
            host, overlap = host_rates(self.cluster), self.engine.copy_overlap
            work = offload_activations(work, moved, self.model.num_blocks, host, overlap)
        return work.take(inverse)

    def row_states(self, meshes: MeshBatch) -> RowStates:
        """States of every row alone; recompute scopes do not matter to them. Arrays (…, rows, B)."""
        style = self.style(meshes.key.cp_kind)
        return self.states().price(model_rows(self.model, self.job), meshes, style)

    def states(self) -> StatePricer:
        """Prices parameter states for the same engine, job and cluster."""
        return StatePricer(self.engine, self.job, self.cluster, self.network, self.efficiency)

    def _with_outputs(self, work: RowWork, meshes: MeshBatch) -> RowWork:
        """Add the output that a pipeline's first stage keeps of every micro-batch in flight, under engines that do.

        Later stages keep one too; they have fewer micro-batches in flight, and are left as they are.
        """
        if not self.engine.keeps_stage_outputs:
            return work
        saved = work.saved_bytes.copy()
        saved[0] += np.where(meshes.pp > 1, work.boundary_bytes[1], 0.0)
        return replace(work, saved_bytes=saved)

    def _with_gathers(self, work: RowWork, states: RowStates, meshes: MeshBatch) -> RowWork:
        """Add the exposed parameter gathers and reductions of sharded engines, and the gathered copies."""
        policy = self.engine.overlap()
        forward, backward = work.forward_parts_s.copy(), work.backward_parts_s.copy()
        spared = work.spared_parts_s.copy()
        gather = self._beside(states.forward_gather_s, work.forward_parts_s[0], policy.micro_overlap)
        forward[_DATA] += gather
        spared[_DATA] += gather  # a recompute runs with the weights that the backward gathered
        share = policy.micro_overlap_backward
        backward[_DATA] += self._beside(states.backward_gather_s, work.backward_parts_s[0], share)
        backward[0] += states.accumulate_s
        gathered = np.where(self.engine.shards_by_unit & (meshes.zero >= 2), 0.0, states.gathered_bytes)
        return replace(
            work,
            forward_parts_s=forward,
            backward_parts_s=backward,
            spared_parts_s=spared,
            weight_s=work.weight_s + states.accumulate_s,
            transient_bytes=work.transient_bytes + gathered + _waiting(states, work.saved_bytes),
            full_transient_bytes=work.full_transient_bytes
            + gathered
            + _waiting(states, work.full_saved_bytes),
        )

    def _by_unit(
        self, work: RowWork, states: RowStates, meshes: MeshBatch, last_block: int
    ) -> tuple[RowWork, Array]:
        """Instants under ZeRO 2 and 3, unit by unit; also those of backward, for the block before the head.

        The gradients of a step's only micro-batch come with the backward pass: they stand among the states, and what
        is saved is less by as much until then.
        """
        base = _passes(work, 0, work.saved_bytes)
        full = _passes(work, 2, work.full_saved_bytes)
        sharded = meshes.zero >= 2
        keeps = self.engine.keeps_head
        transient, backward = unit_transients(base, states.units, last_block, keeps_head=keeps)
        full_transient, full_backward = unit_transients(full, states.units, last_block, keeps_head=keeps)
        only = (meshes.micro_batches(self.job.global_batch) == 1) & self.engine.late_gradients
        late = states.units.shard * only
        found = replace(
            work,
            transient_bytes=np.where(sharded, transient, work.transient_bytes),
            full_transient_bytes=np.where(sharded, full_transient, work.full_transient_bytes),
            saved_bytes=work.saved_bytes - late,
            full_saved_bytes=work.full_saved_bytes - late,
        )
        return found, np.stack((backward, full_backward))

    def _beside(self, communication_s: Array, window_s: Array, share: float) -> Array:
        """Communication that shows beside compute, with the interference of the slowest tier in use."""
        interference = float(self.network.interference.max())
        return exposed(communication_s, window_s, efficiency=share, interference=interference)

    def _work(self, rows: Rows, points: MeshBatch, style: Style) -> RowWork:
        walks = [[self.walk(layer, points, style) for layer in row] for row in rows.rows]
        flat = [walk for row in walks for walk in row]
        kernel_s, message_s = self._kernel_seconds(flat, points), self._message_seconds(flat, points)
        shape = (len(TIME_CAUSES), len(walks), points.size)
        forward, backward, weight, base, spared = (np.zeros(shape) for _ in range(5))
        memory = np.zeros((len(MEMORY_FIELDS) + 5, len(walks), points.size))
        kernel, message = 0, 0
        for index, (row, layers) in enumerate(zip(walks, rows.rows, strict=True)):
            for walk, layer in zip(row, layers, strict=True):
                kernels = kernel_s[kernel : kernel + len(walk.kernels)]
                messages = message_s[message : message + len(walk.messages)]
                parts = self._walk_seconds(walk, kernels, messages, points)
                add_launches(walk, messages, parts, self.efficiency, by_module=self.engine.launches_by_module)
                for total, part in zip((forward, backward, weight, base, spared), parts, strict=True):
                    total[:, index] += layer.count * part
                in_turn = index == 0 and self.model.towers_with_embedding
                add_memory(memory[:, index], walk, layer.count, len(layers), in_turn=in_turn)
                kernel, message = kernel + len(walk.kernels), message + len(walk.messages)
        memory[TRANSIENT_PLACES, -1] += self._loss_bytes(rows, walks)
        fields = dict(zip(MEMORY_FIELDS, memory[: len(MEMORY_FIELDS)], strict=True))
        fields |= {"passes": memory[len(MEMORY_FIELDS) :], "host_bytes": np.zeros(shape[1:])}
        return RowWork(forward, backward, weight.sum(0), base, spared, **fields)

    def _loss_bytes(self, rows: Rows, walks: list[list[LayerWalk]]) -> Num:
        """What the loss builds from all layers at once, on top of the head's transient."""
        per_row = [
            sum(w.loss_bytes * r.count for w, r in zip(*pair, strict=True))
            for pair in zip(walks, rows.rows, strict=True)
        ]
        return sum((per_row[line] for line in rows.layers), start=0.0)

    def _kernel_seconds(self, walks: list[LayerWalk], points: MeshBatch) -> Array:
        kernels = [k for walk in walks for k in walk.kernels]
        precision = self.job.precision.value
        curves = [name for walk in walks for name in walk.kernel_curves] if self.efficiency.measured else []
        table = stack_kernels(kernels, curves)
        seconds = kernel_seconds(table, self.cluster.device, self._curves(), precision)
        return np.broadcast_to(seconds.reshape(len(kernels), -1), (len(kernels), points.size))

    def _curves(self) -> Efficiency:
        """The curves under the engine's attention kernels."""
        scale = self.efficiency.scale
        if self.engine.options.attention != "flash2" or scale.flash2 == 1.0:
            return self.efficiency
        return replace(self.efficiency, scale=replace(scale, attention=scale.attention * scale.flash2))

    def _message_seconds(self, walks: list[LayerWalk], points: MeshBatch) -> Array:
        messages = [m for walk in walks for m in walk.messages]
        if not messages:
            return np.zeros((0, points.size))
        spans = {axis: points.span(axis) for axis in Axis}
        groups = expert_groups(op for kind in self.model.kinds.values() for op in kind.operators)
        table = stack_messages(messages, apart=self.network.measured is not None)
        seconds = message_seconds(table, spans, self.network, groups)
        return np.broadcast_to(seconds.reshape(len(messages), -1), (len(messages), points.size))

    def _module_bytes(self, rows: Rows, points: MeshBatch, style: Style, modules: tuple[str, ...]) -> Array:
        """Bytes (rows, U) of a micro-batch that modules of blocks send to the host."""
        found = np.zeros((len(rows.rows), points.size))
        for index in set(rows.blocks) - set(rows.kept):
            (layer,) = rows.rows[index]
            at = self._shard(layer, points)
            found[index] = moved_bytes(layer.kind, modules, at, style, points.key.scopes)
        return found

    def walk(self, layer: RowLayer, points: MeshBatch, style: Style) -> LayerWalk:
        """Kernels, messages and bytes of one layer for a micro-batch at the points of a batch."""
        return walk_layer(layer.kind, self._shard(layer, points), style, points.key.scopes)

    def _shard(self, layer: RowLayer, points: MeshBatch) -> Shard:
        """Where a layer is counted at the points of a batch."""
        numbers = {name: getattr(points, name).astype(float) for name in ("tp", "cp", "ep", "etp", "sp")}
        at = Shard(
            points.mbs.astype(float),
            1.0,
            1.0,
            self.job.image_size,
            load=self.job.options.moe_imbalance,
            **numbers,
        )
        return stack_shard(self.model, self.job, layer.stack, at)

    def _walk_seconds(
        self, walk: LayerWalk, kernel_s: Array, message_s: Array, points: MeshBatch
    ) -> PassParts:
        """(causes, U) seconds of forward, backward, weight gradients that can wait, base recompute and of what a full
        recompute spares of a layer."""
        shape = (len(TIME_CAUSES), points.size)
        forward, backward, weight, base, spared = (np.zeros(shape) for _ in range(5))
        left_out = walk.idle | (walk.spared if self.engine.stops_early else frozenset())
        kernels = zip(
            walk.kernels, walk.kernel_again, walk.kernel_waits, kernel_s, walk.kernel_ops, strict=True
        )
        for kernel, again, waits, each, name in kernels:
            if kernel.phase is Phase.FORWARD:
                forward[0] += each
                base[0] += again * each
                spared[0] += (1.0 - again) * each if name in left_out else 0.0
            else:
                backward[0] += each
                if waits:
                    weight[0] += each
        for index, (message, shown) in enumerate(
            zip(walk.messages, self._messages_shown(walk, kernel_s, message_s), strict=True)
        ):
            cause = _CAUSE_OF_AXIS[message.axis]
            if message.phase is Phase.FORWARD:
                forward[cause] += shown
                if walk.message_again[index]:
                    base[cause] += shown
                elif walk.message_ops[index] in left_out:
                    spared[cause] += shown
            else:
                backward[cause] += shown
                if message.phase is Phase.WEIGHT_GRADIENT:
                    weight[cause] += shown
        return forward, backward + base, weight, base, spared

    def _messages_shown(self, walk: LayerWalk, kernel_s: Array, message_s: Array) -> list[Array]:
        """Seconds of each message that show; exchanges of experts share their window and pay the host's part."""
        exchange = "ep_dispatch"
        phases = [message.phase for message in walk.messages if message.overlap_class == exchange]
        found = []
        for message, alone_s, kernels in zip(walk.messages, message_s, walk.message_windows, strict=True):
            window = kernel_s[list(kernels)].sum(0)
            if message.overlap_class == exchange:
                window = window / phases.count(message.phase)
            shown = self._shown(message.overlap_class, alone_s, window)
            found.append(shown + self.efficiency.exchange_s if message.overlap_class == exchange else shown)
        return found

    def _shown(self, overlap_class: str, seconds: Array, window_s: Array) -> Array:
        """Seconds of a message that show: at most its class's share of the kernels beside it hides the rest."""
        share = self.engine.overlap().hidden.get(overlap_class, 0.0)
        return self._beside(seconds, window_s, share) if share else seconds


def _waiting(states: RowStates, saved: Array) -> Array:
    """Gradients that wait while a row runs backward, at the pass's highest instant.

    The queue fills by a row's own gradients while what it saved is given back: it is full at the highest instant where
    it grows faster than that shrinks, and has just begun where it does not.
    """
    return np.where(states.own_bytes > saved, states.waiting_bytes, states.own_bytes)


def _passes(work: RowWork, first: int, saved: Array) -> PassBytes:
    forward, backward = work.passes[first], work.passes[first + 1]
    return PassBytes(forward, backward, work.passes[4], work.boundary_bytes, saved)
