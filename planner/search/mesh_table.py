"""A mesh's costs under what the user pinned about recompute: no full recompute, or full recompute of every block."""

from dataclasses import replace

import numpy as np

from cost_models.chunk import Array, LayerTable, MeshCosts
from planner.search.bounding.memory_bounds import MeshSums


def without_full(mesh: MeshCosts) -> MeshCosts:
    """The same mesh where full recompute saves nothing, so that no sensible choice uses it."""
    table = mesh.table
    plain = replace(
        table,
        full_parts_s=np.zeros_like(table.full_parts_s),
        full_saved_bytes=table.saved_bytes,
        full_transient_bytes=table.transient_bytes,
    )
    return replace(mesh, table=plain, may_recompute=False)


def all_full(mesh: MeshCosts) -> MeshCosts:
    """The same mesh with every block recomputed in full, whatever the choice says."""
    table = mesh.table
    blocks = np.ones(table.saved_bytes.shape[0], dtype=bool)
    blocks[[0, -1]] = False

    def pick(base: Array, full: Array) -> Array:
        return np.where(blocks, full, base)

    folded: LayerTable = replace(
        table,
        backward_parts_s=table.backward_parts_s + np.where(blocks, table.full_parts_s, 0.0),
        base_recompute_s=pick(table.base_recompute_s, table.base_recompute_s + table.full_parts_s.sum(0)),
        saved_bytes=pick(table.saved_bytes, table.full_saved_bytes),
        transient_bytes=pick(table.transient_bytes, table.full_transient_bytes),
    )
    return without_full(replace(mesh, table=folded))


def all_recomputed(sums: MeshSums) -> MeshSums:
    """Sums of meshes whose every block is recomputed in full."""
    return replace(
        sums,
        total_s=sums.total_s + sums.full_s * sums.num_blocks,
        block_s=sums.block_s + sums.full_s,
        saved_bytes=sums.full_saved_bytes,
        full_s=np.zeros_like(sums.full_s),
    )
