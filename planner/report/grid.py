"""Where every rank of a mesh sits: sizes and strides of the axes, the links they cross and the bytes they send.

Rank r of an axis of size n and stride s has the coordinate (r // s) % n; its group is r + (i - coordinate) s.
"""

from typing import Any

import numpy as np

from cost_models.chunk import MeshCosts
from cost_models.communication.spans import Count, Span
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.operators.base import Axis
from cost_models.schedule import stage_table
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.strategy import Strategy
from cost_models.traffic import sent_bytes
from planner.evaluation import Context


def device_grid(context: Context, mesh: MeshCosts, strategy: Strategy) -> dict[str, Any]:
    """Axes with stride, tier and bytes of every pipeline rank; tiers from the inside out; blocks of every stage."""
    cluster = context.situation.cluster
    sent = sent_bytes(context.pricer, mesh, strategy)
    spans = _spans(batch_of([strategy], mesh_key(strategy)), strategy)
    axes = [
        {
            "axis": axis,
            "size": size,
            "stride": stride,
            "tier": cluster.tier_for_span(size * stride),
            "sent_bytes": list(sent.get(axis, ())),
        }
        for axis, (size, stride) in spans.items()
    ]
    return {
        "devices": strategy.world_size,
        "devices_per_node": cluster.groups[0].devices_per_node,
        "device": cluster.device.name,
        "groups": _groups(cluster),
        "tiers": [
            {
                "name": tier.name,
                "devices_per_domain": tier.devices_per_domain,
                "bytes_per_s": tier.bytes_per_s.value,
                "latency_s": tier.latency_s.value,
                "shared_by": tier.shared_by,
            }
            for tier in cluster.tiers
        ],
        "axes": axes,
        "stages": _stages(strategy),
    }


def _groups(cluster: ClusterSpec) -> list[dict[str, object]]:
    return [
        {"name": name, "devices": group.num_devices, "device": cluster.device_of(index).name}
        for index, (name, group) in enumerate(zip(cluster.group_names, cluster.groups, strict=True))
    ]


def _stages(strategy: Strategy) -> list[list[dict[str, int]]]:
    """Of every pipeline rank its chunks: virtual stage, first block and number of blocks."""
    bounds = np.concatenate(([0], np.cumsum(strategy.stages)))
    table = stage_table(strategy.schedule, strategy.pp, strategy.vpp)
    return [
        [
            {"stage": int(s), "first": int(bounds[s]), "blocks": int(bounds[s + 1] - bounds[s])}
            for s in table[rank]
        ]
        for rank in range(strategy.pp)
    ]


def _spans(batch: MeshBatch, strategy: Strategy) -> dict[str, tuple[int, int]]:
    """Size and stride of every axis; pp last."""
    shard, replicas, experts = batch.data_spans()
    data = Span(strategy.dp, _first(replicas.stride) // max(strategy.dp_shard, 1))
    found = {
        "tp": batch.span(Axis.TP),
        "cp": batch.span(Axis.CP),
        "dp": data,
        "pp": Span(strategy.pp, batch.stage_stride),
    }
    if strategy.ep > 1:
        found |= {"ep": batch.span(Axis.EP), "expert_dp": experts}
    if strategy.dp_replicate > 1:
        found |= {"dp_shard": shard, "dp_replicate": replicas}
    return {axis: (_first(span.size), _first(span.stride)) for axis, span in found.items()}


def _first(value: Count) -> int:
    return int(np.asarray(value).reshape(-1)[0])
