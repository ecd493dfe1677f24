"""What the devices of one pool make of the rows of every mesh: seconds, bytes at rest and saved, room."""

from dataclasses import dataclass

import numpy as np

from cost_models.chunk import Array
from cost_models.communication import Network, Span
from cost_models.mesh import Int, MeshBatch
from cost_models.mesh_costs import batch_rules, send_seconds
from cost_models.pricing import Pricer

PRICED_TOGETHER = 8192


@dataclass(frozen=True, slots=True)
class PoolSums:
    """What one pool's devices make of the rows of each mesh, arrays (B,) or (kinds, B)."""

    kinds_s: Array  # (kinds, B) forward and backward of a block of each kind
    embedding_s: Array
    head_s: Array
    tails_s: (
        Array  # (kinds + 2, B) optimizer and gather of a block of each kind, of the embedding and of the head
    )
    send_s: Array  # to the next rank inside the pool
    after_s: Array  # from this pool to the next one, the last to the first
    before_s: Array  # from the pool before to this one
    room_bytes: Array
    first_bytes: Array
    last_bytes: Array
    static_bytes: Array
    saved_bytes: Array
    lean_bytes: Array  # the least that a block saves
    full_s: Array

    shares: Array  # (2, B) of a send that a rank waits for, with one chunk and with several

    def take(self, index: Int) -> "PoolSums":
        """Chosen meshes."""
        return PoolSums(*(getattr(self, name)[..., index] for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Recomputes:
    """What may be recomputed in full: nothing, a chosen number of blocks, or every block."""

    free: bool
    everywhere: bool


def pool_sums(
    pricer: Pricer, meshes: MeshBatch, recomputed: tuple[bool, bool], links: tuple[Network, Network]
) -> PoolSums:
    """Sums of a batch on one pool; meshes that differ only in schedule and chunks are priced once.

    `links` lead to the next pool and from the one before; `recomputed` says whether the number of recomputed blocks is
    chosen, and whether every block is recomputed.
    """
    names = ("tp", "cp", "pp", "ep", "etp", "dp_shard", "dp_replicate", "zero", "mbs", "sp")
    columns = np.stack([getattr(meshes, name) for name in names])
    _, first, inverse = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    base = meshes.take(first)
    parts = [
        _sums(pricer, base.take(np.arange(start, min(start + PRICED_TOGETHER, base.size))), recomputed, links)
        for start in range(0, base.size, PRICED_TOGETHER)
    ]
    fields = PoolSums.__dataclass_fields__
    joined = PoolSums(*(np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in fields))
    return joined.take(inverse.reshape(-1))


def block_counts(pricer: Pricer, meshes: MeshBatch) -> Array:
    """How many blocks there are of each kind."""
    rows = pricer.price(meshes.take(np.arange(1))).rows
    counts = np.bincount(rows.layers, minlength=len(rows.rows)).astype(float)
    return counts[1:-1]


def _sums(
    pricer: Pricer, meshes: MeshBatch, recomputed: tuple[bool, bool], links: tuple[Network, Network]
) -> PoolSums:
    free, everywhere = recomputed
    priced = pricer.price(meshes)
    rules, work, states = batch_rules(pricer, priced), priced.work, priced.states
    counts = np.bincount(priced.rows.layers, minlength=len(priced.rows.rows))
    kind = 1 + int(np.argmax(counts[1:-1]))
    forward = work.forward_parts_s.sum(0)
    again = forward - work.base_parts_s.sum(0) - work.spared_parts_s.sum(0)
    time_s = forward + work.backward_parts_s.sum(0)
    least_saved = np.minimum(work.saved_bytes, work.full_saved_bytes)
    saved = work.full_saved_bytes if everywhere else work.saved_bytes
    if everywhere:
        time_s = time_s.copy()
        time_s[1:-1] += again[1:-1]
    static = states.static_parts_bytes.sum(0)
    transient = np.minimum(work.transient_bytes, work.full_transient_bytes)[1:-1].min(0)
    last_transient = np.maximum(work.transient_bytes[-1], transient - work.saved_bytes[-1])
    tails = states.optimizer_s + rules.hiding.gather_exposed * states.gather_s
    overlap = pricer.engine.overlap()
    return PoolSums(
        kinds_s=time_s[1:-1],
        embedding_s=time_s[0],
        head_s=time_s[-1],
        tails_s=np.concatenate((tails[1:-1], tails[:1], tails[-1:])),
        send_s=rules.send_s,
        after_s=send_seconds(pricer, priced, Span(2, 1), links[0]),
        before_s=send_seconds(pricer, priced, Span(2, 1), links[1]),
        room_bytes=rules.limit_bytes - rules.workspace_bytes - transient,
        first_bytes=static[0] + work.saved_bytes[0],
        last_bytes=static[-1] + work.saved_bytes[-1] + last_transient - transient,
        static_bytes=static[kind],
        saved_bytes=saved[kind],
        lean_bytes=(saved if everywhere or not free else least_saved)[kind],
        full_s=again[1:-1].min(0),
        shares=np.multiply.outer([overlap.send_shown_plain, overlap.send_shown], np.ones(meshes.size)),
    )
