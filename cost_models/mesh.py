"""Many meshes at once: every knob of a strategy but stage boundaries and full recompute, as arrays.

A single strategy is a batch of one, so that legality, memory and time have one definition for one layout and for the
tens of thousands that the search looks at.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from cost_models.communication import Span
from cost_models.operators.base import Axis
from cost_models.operators.context import inner_ranks
from cost_models.schedule.names import ScheduleName
from cost_models.specs.offload import (
    NO_ACTIVATIONS,
    NO_OFFLOAD,
    ActivationOffload,
    Offload,
    parse_act_offload,
    parse_offload,
)
from cost_models.specs.pools import Pool, pools_of
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy

Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

SCHEDULES: tuple[ScheduleName, ...] = tuple(ScheduleName)


@dataclass(frozen=True, slots=True)
class MeshKey:
    """What is equal within one batch: recompute base, kind of context parallelism, order of axes, offloads, pools."""

    scopes: tuple[str, ...] = ()
    cp_kind: str = "ring"
    order: tuple[str, ...] = DEFAULT_ORDER
    offload: Offload = NO_OFFLOAD
    pools: tuple[Pool, ...] = ()
    """Device groups of the pipeline's ranks, in its order; none where all devices are alike."""
    activations: ActivationOffload = NO_ACTIVATIONS


@dataclass(frozen=True, slots=True)
class MeshBatch:
    """B meshes; integer arrays of shape (B,); `schedule` indexes SCHEDULES."""

    key: MeshKey
    tp: Int
    cp: Int
    pp: Int
    vpp: Int
    ep: Int
    etp: Int
    dp: Int
    dp_shard: Int
    dp_replicate: Int
    zero: Int
    mbs: Int
    sp: Int
    schedule: Int

    @property
    def size(self) -> int:
        """B."""
        return int(self.tp.shape[0])

    def take(self, where: Int | Bool) -> "MeshBatch":
        """The chosen meshes."""
        return MeshBatch(self.key, *(getattr(self, f.name)[where] for f in fields(self)[1:]))

    def row(self, index: int) -> dict[str, int]:
        """One mesh as plain integers."""
        return {f.name: int(getattr(self, f.name)[index]) for f in fields(self)[1:]}

    def schedule_name(self, index: int) -> ScheduleName:
        """Schedule of one mesh."""
        return SCHEDULES[int(self.schedule[index])]

    @property
    def expert_ranks(self) -> Int:
        """Data-parallel size of the experts, tp x cp x dp / (etp x ep)."""
        ranks: Int = self.tp * self.cp * self.dp // (self.etp * self.ep)
        return ranks

    def micro_batches(self, global_batch: int) -> Int:
        """Micro-batches per data-parallel rank and step."""
        count: Int = global_batch // (self.mbs * self.dp)
        return count

    @property
    def ranks_per_stage(self) -> Int:
        """Devices of one pipeline rank, tp x cp x dp."""
        ranks: Int = self.tp * self.cp * self.dp
        return ranks

    def stage_groups(self, index: int) -> tuple[str, ...]:
        """Device groups of every pipeline rank of one mesh; none where all devices are alike."""
        ranks = int(self.ranks_per_stage[index])
        return tuple(pool.text for pool in self.key.pools for _ in range(pool.devices // ranks))

    @property
    def stage_stride(self) -> Int:
        """Distance in ranks between neighbouring pipeline stages."""
        return self._stride("pp", self.tp, self.cp, self.dp)

    def _stride(self, axis: str, tp: Int, cp: Int, dp: Int) -> Int:
        sizes = {"tp": tp, "cp": cp, "dp": dp, "pp": self.pp}
        stride = np.ones_like(self.tp)
        for name in self.key.order:
            if name == axis:
                break
            stride = stride * sizes.get(name, 1)
        return stride

    def span(self, axis: Axis) -> Span:
        """Size and stride of the ranks that a message on `axis` joins.

        Dense ranks are numbered in the strategy's order; expert ranks re-divide tp x cp x dp as etp, ep, expert data
        parallel from the inside (Megatron-LM's expert rank generator), with pp where the order has it.
        """
        one = np.ones_like(self.tp)
        if axis is Axis.TP:
            return Span(self.tp, self._stride("tp", self.tp, self.cp, self.dp))
        if axis is Axis.CP:
            return Span(self.cp, self._stride("cp", self.tp, self.cp, self.dp))
        if axis in (Axis.CP_INNER, Axis.CP_OUTER):
            stride = self._stride("cp", self.tp, self.cp, self.dp)
            inner = np.minimum(max(inner_ranks(self.key.cp_kind), 1), self.cp)
            return Span(inner, stride) if axis is Axis.CP_INNER else Span(self.cp // inner, stride * inner)
        inner = self.pp if self._pp_before("ep") else one
        if axis is Axis.ETP:
            return Span(self.etp, one)
        return Span(self.ep, self.etp * inner)

    def _pp_before(self, axis: str) -> bool:
        order = self.key.order
        return order.index("pp") < order.index(axis)

    def data_spans(self) -> tuple[Span, Span, Span]:
        """Spans of (sharded dense states over dp_shard x cp, their replicas, expert states).

        Where other axes lie between cp and dp the group is taken to be evenly spread over the ranks that it spans.
        """
        pp_inside = self.pp if self._pp_before("dp") else np.ones_like(self.pp)
        cp_stride, dp_stride = (self._stride(axis, self.tp, self.cp, self.dp) for axis in ("cp", "dp"))
        spread = np.maximum(cp_stride * self.cp, dp_stride * self.dp) // (self.cp * self.dp)
        shard = Span(self.dp_shard * self.cp, spread)
        replicas = Span(self.dp_replicate, dp_stride * self.dp_shard)
        expert = Span(self.expert_ranks, self.etp * self.ep * pp_inside)
        return shard, replicas, expert


def mesh_key(strategy: Strategy) -> MeshKey:
    """The batch a strategy belongs to."""
    offload = parse_offload(strategy.offload)
    pools = pools_of(strategy.stage_groups, strategy.tp * strategy.cp * strategy.dp)
    return MeshKey(
        strategy.recompute.scopes,
        strategy.cp_kind,
        strategy.order,
        offload,
        pools,
        parse_act_offload(strategy.act_offload),
    )


def batch_of(strategies: Iterable[Strategy], key: MeshKey) -> MeshBatch:
    """Strategies of one key as a batch."""
    rows = [
        (
            *(
                s.tp,
                s.cp,
                s.pp,
                s.vpp,
                s.ep,
                s.etp,
                s.dp,
                s.dp_shard,
                s.dp_replicate,
                s.zero,
                s.mbs,
                int(s.sp),
            ),
            SCHEDULES.index(s.schedule),
        )
        for s in strategies
    ]
    columns = np.asarray(rows, dtype=np.int64).reshape(len(rows), 13).T
    return MeshBatch(key, *columns)


def distinct_points(meshes: MeshBatch) -> tuple[MeshBatch, Int]:
    """Distinct points of a batch and the point of every mesh; placement counts where pp lies inside ep."""
    names = ["tp", "cp", "ep", "etp", "sp", "mbs"]
    if meshes.key.order.index("pp") < meshes.key.order.index("ep"):
        names.append("pp")
    columns = np.stack([getattr(meshes, name) for name in names])
    _, first, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return meshes.take(first), inverse.reshape(-1)
