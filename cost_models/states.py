"""Parameter states of every row: bytes that stay, data-parallel traffic, optimizer work; arrays (rows, B)."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.communication import Network, Span, collective_seconds
from cost_models.engines import Engine, SyncPlan, local_elements
from cost_models.mesh import MeshBatch
from cost_models.operators.base import Collective, ParameterGroup, Style
from cost_models.roofline import Efficiency, optimizer_seconds
from cost_models.rows import RowLayer, Rows
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import Job
from cost_models.units import Num


@dataclass(frozen=True, slots=True)
class RowStates:
    """Per row and mesh: bytes at rest by cause, bytes of one gathered copy, and seconds of the step's traffic."""

    static_parts_bytes: Array  # (3, rows, B): weights, gradients, optimizer
    step_transient_bytes: Array  # (rows, B)
    gathered_bytes: Array  # (rows, B) unsharded parameters and gradient of the row while it runs
    sync_s: Array
    gather_s: Array
    optimizer_s: Array
    forward_gather_s: Array  # per micro-batch
    backward_gather_s: Array  # per micro-batch, gradient reduction included


@dataclass(slots=True)
class _Traffic:
    """Bytes (B,) of one row's groups that travel over one kind of data-parallel group."""

    reduce_scatter: Array
    all_reduce: Array
    all_gather: Array
    forward_gather: Array
    backward_gather: Array
    micro_reduce: Array

    @classmethod
    def none(cls, size: int) -> "_Traffic":
        """No traffic yet."""
        return cls(*(np.zeros(size) for _ in range(6)))

    def add(self, elements: Num, plan: SyncPlan) -> None:
        """Add one group's bytes."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + elements * getattr(plan, name))


def row_groups(
    row: tuple[RowLayer, ...], stored_before: frozenset[str] = frozenset()
) -> list[tuple[ParameterGroup, int]]:
    """Parameter groups of a row with their multiplicity, without the ties stored on this rank already.

    Within one row a tie counts once (T5's two stacks share one table; prediction layers share the head).
    """
    seen = set(stored_before)
    found: list[tuple[ParameterGroup, int]] = []
    for layer in row:
        for op in layer.kind.operators:
            for group in op.parameters():
                if group.tie:
                    if group.tie in seen:
                        continue
                    seen.add(group.tie)
                found.append((group, layer.count))
    return found


class StatePricer:
    """Prices the states of rows for one engine, job and cluster."""

    def __init__(
        self, engine: Engine, job: Job, device: DeviceSpec, network: Network, efficiency: Efficiency
    ) -> None:
        self._engine, self._job, self._efficiency = engine, job, efficiency
        self._device, self._network = device, network

    def price(self, rows: Rows, meshes: MeshBatch, style: Style) -> RowStates:
        """States of every row; a head tied to the embedding is stored again (and reduced) where pp > 1."""
        groups = [row_groups(row) for row in rows.rows]
        priced = [self._row(each, meshes, style) for each in groups]
        before = frozenset(group.tie for each in groups[:-1] for group, _ in each if group.tie)
        without_tie = self._row(row_groups(rows.rows[-1], before), meshes, style)
        single = meshes.pp == 1
        columns = []
        for name in RowStates.__dataclass_fields__:
            values = [getattr(row, name) for row in priced]
            values[-1] = np.where(single, getattr(without_tie, name), values[-1])
            columns.append(np.stack(values, axis=-2))
        return RowStates(*columns)

    def _row(self, groups: list[tuple[ParameterGroup, int]], meshes: MeshBatch, style: Style) -> RowStates:
        """One row: (3, B) and (B,) arrays."""
        size = meshes.size
        static = np.zeros((3, size))
        transient, gathered, optimizer = np.zeros(size), np.zeros(size), np.zeros(size)
        dense, expert = _Traffic.none(size), _Traffic.none(size)
        for group, count in groups:
            elements = local_elements(group, meshes, style) * count
            state = self._engine.state_bytes(group, meshes, self._job)
            static += np.stack([elements * x for x in (state.weights, state.gradients, state.optimizer)])
            transient += elements * state.step_transient
            optimizer += elements * state.step_traffic
            plan = self._engine.sync_plan(group, meshes, self._job)
            gathered += elements * (
                plan.forward_gather * self._engine.gathered_units(meshes) + plan.micro_reduce
            )
            (expert if group.is_expert else dense).add(elements, plan)
        shard, replicas, expert_span = meshes.data_spans()
        parts = [self._traffic_s(dense, shard), self._traffic_s(expert, expert_span)]
        again = self._replica_s(dense, shard, replicas)
        optimizer_s = optimizer_seconds(optimizer, 1.0, self._device, self._efficiency)
        sync, gather, forward, backward = (parts[0][i] + parts[1][i] for i in range(4))
        return RowStates(static, transient, gathered, sync + again, gather, optimizer_s, forward, backward)

    def _traffic_s(self, bytes_: _Traffic, span: Span) -> tuple[Array, Array, Array, Array]:
        def seconds(collective: Collective, payload: Array) -> Array:
            return np.asarray(collective_seconds(collective, payload, span, self._network))

        scatter, reduce, gather = Collective.REDUCE_SCATTER, Collective.ALL_REDUCE, Collective.ALL_GATHER
        sync = seconds(scatter, bytes_.reduce_scatter) + seconds(reduce, bytes_.all_reduce)
        micro = seconds(scatter, bytes_.micro_reduce)
        return (
            sync,
            seconds(gather, bytes_.all_gather),
            seconds(gather, bytes_.forward_gather),
            seconds(gather, bytes_.backward_gather) + micro,
        )

    def _replica_s(self, bytes_: _Traffic, shard: Span, replicas: Span) -> Array:
        """HSDP: the reduced shard is all-reduced over its replicas once a step."""
        payload = bytes_.micro_reduce / np.asarray(shard.size)
        return np.asarray(collective_seconds(Collective.ALL_REDUCE, payload, replicas, self._network))
