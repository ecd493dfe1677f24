"""States of a block of nodes: priced once whatever the recompute scopes, and held against memory before anything else.

Kinds that differ in scopes alone keep parameters in the same way, so a (row, state) is priced once for all of them.
All ranks of a mesh together hold its states and at least one saved micro-batch of every row, recomputed where that is
less, beside the least transient of a block. Where that is above their limits nothing fits, whatever is gathered.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.mesh import Bool, Int, MeshBatch
from cost_models.mesh_costs import memory_limits
from cost_models.pricing import Pricer
from cost_models.row_work import RowWork
from cost_models.states import RowStates, joined_states
from planner.families import Families
from planner.search.bounding.mesh_bounds import CHUNK

STATE_AXES = ("tp", "cp", "pp", "ep", "etp", "dp")
"""Degrees that parameter states see, beside their own (ZeRO, replicas, offload)."""


def fewest_replicas(families: Families, states: list[int]) -> list[list[int]]:
    """Places in a list of states: of every ZeRO stage that with the fewest replicas, then all others."""
    told = [families.options.states[state] for state in states]
    fewest = {one.zero: min(t.replicate for t in told if t.zero == one.zero) for one in told}
    first = [i for i, one in enumerate(told) if one.replicate == fewest[one.zero]]
    return [first, [i for i in range(len(states)) if i not in first]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What states are priced with: layers of each row of the model, and the point of each row of the families."""

    pricer: Pricer
    families: Families
    counts: Array
    points: Int


@dataclass(frozen=True, slots=True)
class RowBytes:
    """Of rows under one kind: all that a micro-batch saves at least, the least transient of a block, the head, (n,)."""

    saved: Array
    transient: Array
    head_saved: Array
    head_transient: Array

    @classmethod
    def of(cls, work: RowWork, counts: Array) -> "RowBytes":
        """Bytes of kernels alone; states add to them."""
        return cls(
            counts @ np.minimum(work.saved_bytes, work.full_saved_bytes),
            np.minimum(work.transient_bytes, work.full_transient_bytes)[1:-1].min(0),
            work.saved_bytes[-1],
            work.transient_bytes[-1],
        )

    def take(self, index: Int) -> "RowBytes":
        """Chosen rows."""
        return RowBytes(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def state_points(pricer: Pricer, rows: MeshBatch) -> Int:
    """Of every row the number of the point that its states see: degrees, and how many micro-batches there are.

    Engines but those of `states_by_micro_batches` ask only whether there are several.
    """
    micro = rows.micro_batches(pricer.job.global_batch)
    told = micro if pricer.engine.states_by_micro_batches else np.minimum(micro, 2)
    columns = np.stack([*(getattr(rows, name) for name in STATE_AXES), told])
    _, point = np.unique(columns, axis=1, return_inverse=True)
    numbers: Int = point.reshape(-1)
    return numbers


@dataclass(frozen=True, slots=True)
class StateBlock:
    """Priced pairs of point and state; `place` says which of them every asked state is."""

    states: RowStates
    place: Int
    static_bytes: Array  # (pairs,) of all ranks together
    room_bytes: Array  # (asked,) the limit less what lies beside the layers

    @classmethod
    def of(
        cls, parts: "Parts", kind: int, row: Int, state: Int, late: Callable[[], bool]
    ) -> "StateBlock | None":
        """Price the distinct pairs of points and states of one offload; None where that took too long."""
        pricer, families = parts.pricer, parts.families
        code = parts.points[row] * len(families.options.states) + state
        _, first, place = np.unique(code, return_index=True, return_inverse=True)
        priced, rooms = [], []
        for start in range(0, first.size, CHUNK):
            if late():
                return None
            some = first[start : start + CHUNK]
            meshes = families.batch(kind, row[some], state[some], np.zeros_like(some))
            priced.append(pricer.row_states(meshes))
        for start in range(0, row.size, CHUNK):
            some = slice(start, start + CHUNK)
            meshes = families.batch(kind, row[some], state[some], np.zeros_like(row[some]))
            limit, beside = memory_limits(pricer, meshes)
            rooms.append(np.broadcast_to(limit - beside, meshes.mbs.shape))
        states = joined_states(priced)
        static = parts.counts @ states.static_parts_bytes.sum(0)
        return cls(states, place.reshape(-1), static, np.concatenate(rooms))

    def short(self, least: RowBytes, asked: Int, pp: Array) -> Bool:
        """Which of some asked states lack memory whatever the pipe; `least` and `pp` are theirs."""
        pair = self.place[asked]
        head = np.maximum(least.head_transient, least.transient - least.head_saved)
        needed = (self.static_bytes[pair] + least.saved + head - least.transient) / pp + least.transient
        room = self.room_bytes[asked]
        short: Bool = needed > room + np.abs(room) * 1e-12
        return short

    def take(self, asked: Int) -> RowStates:
        """The states of some of those asked."""
        return self.states.take(self.place[asked])
