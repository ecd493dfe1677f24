"""Parameter states of every row: bytes that stay, data-parallel traffic, optimizer work; arrays (rows, B)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost_models.chunk import Array
from cost_models.communication import Network, Span, collective_seconds, parameter_server_seconds
from cost_models.engines import Engine, RowInstants, SyncPlan, local_elements
from cost_models.host import host_rates
from cost_models.mesh import MeshBatch
from cost_models.operators.base import Collective, ParameterGroup, Style
from cost_models.operators.frozen import groups_of
from cost_models.roofline import COPY, Efficiency, memory_seconds, optimizer_seconds
from cost_models.rows import RowLayer, Rows
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job
from cost_models.sync_bytes import SyncBytes
from cost_models.unit_instants import UnitBytes
from cost_models.units import Num


@dataclass(frozen=True, slots=True)
class RowStates:
    """Per row and mesh: bytes at rest by cause, bytes of one gathered copy, and seconds of the step's traffic."""

    static_parts_bytes: Array  # (3, rows, B): weights, gradients, optimizer
    step_transient_bytes: Array  # (rows, B)
    gathered_bytes: Array  # (rows, B) unsharded parameters and gradient of the row while it runs
    own_bytes: Array  # (rows, B) whole gradients of the row that wait for their reduction
    waiting_bytes: Array  # (rows, B) the most that wait, of all rows
    sync_s: Array
    gather_s: Array
    optimizer_s: Array
    host_bytes: Array  # (rows, B) in the host's memory: offloaded, or while the model is built or loaded
    initial_bytes: Array  # (rows, B) on the device while the model is built
    load_bytes: Array  # (rows, B) beside the states while a checkpoint is loaded
    forward_gather_s: Array  # per micro-batch, from the host where parameters are offloaded
    backward_gather_s: Array  # per micro-batch, gradient reduction included
    accumulate_s: (
        Array  # per micro-batch, what no product does: adding its gradients to those before, and copies
    )
    # between parameters and the flat messages of sharded engines
    units: UnitBytes  # what comes and goes with a row of engines that shard by unit; zeros for the others

    def take(self, index: NDArray[np.int64]) -> "RowStates":
        """The states of chosen meshes."""
        plain = {
            name: getattr(self, name)[..., index] for name in self.__dataclass_fields__ if name != "units"
        }
        return RowStates(**plain, units=self.units.take(index))


def joined_states(parts: list[RowStates]) -> RowStates:
    """States of several batches one after the other."""
    if len(parts) == 1:
        return parts[0]
    names = [name for name in RowStates.__dataclass_fields__ if name != "units"]
    plain = {name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names}
    return RowStates(**plain, units=UnitBytes.joined([part.units for part in parts]))


def row_groups(
    row: tuple[RowLayer, ...], stored_before: frozenset[str] = frozenset()
) -> list[tuple[ParameterGroup, int]]:
    """Parameter groups of a row with their multiplicity, without the ties stored on this rank already.

    Within one row a tie counts once (T5's two stacks share one table; prediction layers share the head).
    """
    seen = set(stored_before)
    found: list[tuple[ParameterGroup, int]] = []
    for layer in row:
        if layer.shares and layer.shares in layer.held:
            continue
        for op in layer.kind.operators:
            if op.shares and op.shares in layer.held:
                continue
            for group in groups_of(op):
                if group.tie:
                    if group.tie in seen:
                        continue
                    seen.add(group.tie)
                found.append((group, layer.count))
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """Sums of one row over its parameter groups, before any second is computed."""

    elements: Array  # (B,) parameters on one rank
    trained: Array  # (B,) those that are trained
    static: Array  # (3, B)
    step_transient: Array
    gathered: Array
    step_traffic: Array
    copied: Array  # traffic of a micro-batch between parameters and flat messages
    host: Array  # (3, B): bytes that rest on the host, traffic of its optimizer step, bytes over its link
    dense: SyncBytes
    expert: SyncBytes
    unit: Array  # (5, B) in the order of UnitBytes
    built: Array  # (2, B): the whole of the rank's tensor-parallel part as it is built, and what of it stays


class StatePricer:
    """Prices the states of rows for one engine, job and cluster."""

    def __init__(
        self, engine: Engine, job: Job, cluster: ClusterSpec, network: Network, efficiency: Efficiency
    ) -> None:
        self._engine, self._job, self._efficiency = engine, job, efficiency
        self._device, self._network = cluster.device, network
        self._host = host_rates(cluster)
        self._devices_per_node = cluster.groups[0].devices_per_node

    def price(self, rows: Rows, meshes: MeshBatch, style: Style) -> RowStates:
        """States of every row; a table that an earlier row holds is stored (and reduced) again only where pp > 1."""
        held: set[str] = set()
        for row in rows.rows[:-1]:
            held |= {group.tie for group, _ in row_groups(row, frozenset()) if group.tie}
        summed = [self._sum(row_groups(row, frozenset()), meshes, style) for row in rows.rows]
        summed.append(self._sum(row_groups(rows.rows[-1], frozenset(held)), meshes, style))
        priced = self._seconds(summed, meshes, (*rows.layers[:-1], len(rows.rows)))
        single = meshes.pp == 1

        def fold(values: Array) -> Array:
            """The last line is the head without the tables an earlier row holds; it stands where pp = 1."""
            kept = values[..., :-1, :].copy()
            kept[..., -1, :] = np.where(single, values[..., -1, :], values[..., -2, :])
            return kept

        plain = {
            name: fold(getattr(priced, name)) for name in RowStates.__dataclass_fields__ if name != "units"
        }
        return RowStates(**plain, units=priced.units.pick(single))

    def sent_bytes(self, rows: Rows, meshes: MeshBatch, style: Style) -> tuple[Array, Array]:
        """Bytes (rows, B) that a rank sends to its data-parallel groups: once a step, and every micro-batch.

        A ring of n ranks sends (n - 1) / n of what it gathers or scatters, twice that of what it reduces.
        """
        shard, replicas, experts = meshes.data_spans()
        summed = [self._sum(row_groups(row, frozenset()), meshes, style) for row in rows.rows]
        step, micro = np.zeros((2, len(summed), meshes.size))
        for row, one in enumerate(summed):
            for moved, span in ((one.dense, shard), (one.expert, experts)):
                share = 1.0 - 1.0 / np.asarray(span.size, dtype=float)
                step[row] += share * (moved.reduce_scatter + moved.all_gather + 2.0 * moved.all_reduce)
                step[row] += np.where(share > 0.0, moved.server, 0.0)
                micro[row] += share * (moved.forward_gather + moved.backward_gather + moved.micro_reduce)
            copies = np.asarray(replicas.size, dtype=float)
            shards = (one.dense.micro_reduce + one.dense.reduce_scatter) / np.asarray(shard.size, dtype=float)
            step[row] += 2.0 * (1.0 - 1.0 / copies) * shards
        return step, micro

    def _sum(self, groups: list[tuple[ParameterGroup, int]], meshes: MeshBatch, style: Style) -> _Row:
        """Bytes and traffic of one row."""
        size = meshes.size
        static, local, trained = np.zeros((3, size)), np.zeros(size), np.zeros(size)
        transient, gathered, traffic, copied, host = (
            np.zeros(shape) for shape in (size, size, size, size, (3, size))
        )
        dense, expert = SyncBytes.none(size), SyncBytes.none(size)
        units, unit, built = self._engine.gathered_units(meshes), np.zeros((5, size)), np.zeros((2, size))
        for group, count in groups:
            elements = local_elements(group, meshes, style) * count
            local += elements
            state = self._engine.group_bytes(group, meshes, self._job)
            for index, each in enumerate((state.weights, state.gradients, state.optimizer)):
                static[index] += elements * each
            transient += elements * state.step_transient
            traffic += elements * state.step_traffic
            for index, each in enumerate((state.host, state.host_traffic, state.host_link)):
                host[index] += elements * each
            built[0] += elements * self._engine.built_bytes(group, self._job)
            built[1] += elements * state.weights
            plan = self._engine.group_plan(group, meshes, self._job)
            trained += 0.0 if group.frozen else elements
            gathered += elements * (plan.forward_gather * units + plan.micro_reduce)
            copied += elements * self._engine.flat_copy_bytes(group, plan, meshes)
            for index, each in enumerate(self._unit_bytes(group, plan, state.gradients, meshes)):
                unit[index] += elements * each
            travelling = expert if group.is_expert else dense
            travelling.add(elements, plan)
            copies = elements * self._job.reference.weights
            if self._job.reference.weights:
                frozen = replace(group, frozen=True)
                static[0] += copies * self._engine.frozen_bytes(frozen, meshes, self._job).weights
                gather = self._engine.frozen_plan(frozen, meshes, self._job).forward_gather
                travelling.add(copies, SyncPlan(forward_gather=gather))
        return _Row(
            local, trained, static, transient, gathered, traffic, copied, host, dense, expert, unit, built
        )

    def _unit_bytes(
        self, group: ParameterGroup, plan: SyncPlan, gradients: Num, meshes: MeshBatch
    ) -> tuple[Num, ...]:
        """Bytes an element in the order of UnitBytes."""
        if not self._engine.shards_by_unit:
            return (0.0, 0.0, 0.0, 0.0, 0.0)
        ways = np.asarray(meshes.expert_ranks if group.is_expert else meshes.dp_shard * meshes.cp)
        comes = np.where(meshes.zero == 3, plan.forward_gather, 0.0)
        whole = 0.0 if group.frozen else plan.forward_gather
        late = np.where(np.asarray(plan.micro_reduce) > 0.0, gradients, 0.0)
        return comes, np.where(ways > 1, plan.forward_gather, 0.0), whole, plan.micro_reduce, late

    def _seconds(self, rows: list[_Row], meshes: MeshBatch, layers: tuple[int, ...]) -> RowStates:
        """Price all rows at once; `layers` is the row of every layer.

        HSDP, and instances of the distributed optimizer, all-reduce the reduced shard over replicas once a step.
        """
        shard, replicas, expert_span = meshes.data_spans()
        dense = SyncBytes.stack([row.dense for row in rows])
        expert = SyncBytes.stack([row.expert for row in rows])
        parts = [self._traffic_s(dense, shard), self._traffic_s(expert, expert_span)]
        again = self._collective_s(
            Collective.ALL_REDUCE,
            (dense.micro_reduce + dense.reduce_scatter) / np.asarray(shard.size),
            replicas,
        )
        sync, gather, forward, backward = (parts[0][i] + parts[1][i] for i in range(4))
        near = Span(np.minimum(np.asarray(shard.size), self._engine.near_ranks), shard.stride)
        backward = backward + self._collective_s(Collective.ALL_GATHER, dense.near_gather, near)
        traffic, host = np.stack([row.step_traffic for row in rows]), np.stack([row.host for row in rows])
        built = np.stack([row.built for row in rows])
        whole = np.stack([row.elements for row in rows])[list(layers)].sum(0)
        host[0, 0] += self._engine.host_buffer_bytes(whole, meshes)
        instants = self._engine.instants(
            RowInstants(
                np.stack([row.elements for row in rows]),
                np.stack([row.gathered for row in rows]),
                np.stack([row.step_transient for row in rows]),
                layers,
                np.stack([row.trained for row in rows]),
            ),
            meshes,
        )
        return RowStates(
            np.stack([row.static for row in rows], axis=1),
            instants.stepping,
            instants.gathered,
            np.broadcast_to(instants.own, instants.gathered.shape),
            np.broadcast_to(instants.waiting, instants.gathered.shape),
            sync + again,
            gather,
            optimizer_seconds(traffic, 1.0, self._device, self._efficiency)
            + self._host.step_seconds(host[:, 1], host[:, 2]),
            np.maximum(host[:, 0], self._on_host(built[:, 0])),
            *self._on_device(built),
            forward,
            backward,
            self._accumulate_s(rows, meshes),
            UnitBytes(*np.stack([row.unit for row in rows], axis=1)),
        )

    def _accumulate_s(self, rows: list[_Row], meshes: MeshBatch) -> Array:
        """Seconds in which a micro-batch's gradients are added to those before, (rows, B); a step of one has none.

        Sharded engines' copies into and out of flat messages come in every micro-batch.
        """
        each = self._engine.accumulation_bytes(self._job)
        several = (meshes.micro_batches(self._job.global_batch) > 1) & (meshes.zero < 2)
        added = np.stack([row.trained for row in rows]) * each * several
        copied = np.stack([row.copied for row in rows])
        return memory_seconds(added, self._device, self._efficiency) + memory_seconds(
            copied, self._device, self._efficiency, COPY
        )

    def _on_device(self, built: Array) -> tuple[Array, Array]:
        """Bytes (rows, B) on the device while the model is built, and beside the states while it is loaded."""
        options, none = self._engine.options, np.zeros_like(built[:, 0])
        whole, kept = built[:, 0], built[:, 1]
        initial = whole + np.where(kept < whole, kept, 0.0) if options.initialise == "device" else none
        return initial, whole if options.load == "device" else none

    def _on_host(self, whole: Array) -> Array:
        """The same in host memory; what one rank of a node holds is shared among its devices."""
        options = self._engine.options
        if "host" in (options.initialise, options.load):
            return whole
        return whole / self._devices_per_node if options.initialise == "rank0" else np.zeros_like(whole)

    def _traffic_s(self, moved: SyncBytes, span: Span) -> tuple[Array, Array, Array, Array]:
        """Seconds of (gradient reduction, parameter gather, forward gather, backward gather and reduction)."""
        scatter, reduce, gather = Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, Collective.ALL_GATHER
        # A server takes all gradients before it sends the parameters back: half of the time each.
        pushed = 0.5 * self._server_s(moved.server, span)
        return (
            self._collective_s(scatter, moved.reduce_scatter, span)
            + self._collective_s(reduce, moved.all_reduce, span)
            + pushed,
            self._collective_s(gather, moved.all_gather, span) + pushed,
            self._collective_s(gather, moved.forward_gather, span)
            + self._host.link_seconds(moved.forward_link),
            self._collective_s(gather, moved.backward_gather, span)
            + self._collective_s(scatter, moved.micro_reduce, span)
            + self._host.link_seconds(moved.backward_link),
        )

    def _server_s(self, payload: Array, span: Span) -> Array:
        """Seconds in which the servers of a group gather from, and send to, all others, `payload` bytes each."""
        if not payload.any():
            return np.zeros(payload.shape)
        return np.asarray(parameter_server_seconds(payload, span, self._network))

    def _collective_s(self, collective: Collective, payload: Array, span: Span) -> Array:
        if not payload.any():
            return np.zeros(payload.shape)
        return np.asarray(collective_seconds(collective, payload, span, self._network))
