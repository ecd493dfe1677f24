"""Memory of a strategy: bytes of every pipeline rank beside its device's, and the probability that it is short."""

import numpy as np

from cost_models.chunk import MeshCosts
from cost_models.device_memory import DeviceMemory, device_memory
from cost_models.host import host_room_bytes
from cost_models.memory import RankMemory, rank_memory
from cost_models.mesh import batch_of, mesh_key
from cost_models.schedule import stage_table
from cost_models.specs.strategy import Strategy
from planner.answers import MemoryPrediction, StageMemory
from planner.pools import Pools


def predict_memory(
    pools: Pools, labels: tuple[str, ...], strategy: Strategy, mesh: MeshCosts
) -> tuple[MemoryPrediction, float]:
    """Memory of every pipeline rank, the fullest one in front, and its probability of running out.

    The fullest rank is the one with the least room: on mixed device groups not always the one with most bytes.
    """
    place = (strategy.stages, strategy.full_layers())
    ranks = [rank_memory(mesh.of_rank(rank), *place, rank) for rank in range(strategy.pp)]
    devices = _device_memories(pools, strategy)
    room = [
        float(device.oom_probability(found.peak_bytes)) for device, found in zip(devices, ranks, strict=True)
    ]
    worst = max(range(len(ranks)), key=lambda rank: (room[rank], ranks[rank].peak_bytes))
    peak, device = ranks[worst].peak_bytes, devices[worst]
    used = float(np.max(device.used_bytes(peak)))
    hosts = [host_room_bytes(pools.cluster_of(strategy, rank)) for rank in range(strategy.pp)]
    short = any(found.host_bytes > host for found, host in zip(ranks, hosts, strict=True))
    stages = tuple(_stage((labels, strategy, rank), devices[rank], found) for rank, found in enumerate(ranks))
    memory = MemoryPrediction(
        capacity_bytes=device.capacity_bytes,
        peak_allocated_bytes=peak,
        peak_reserved_bytes=float(device.reserved_bytes(peak)),
        device_used_bytes=used,
        host_bytes=max(rank.host_bytes for rank in ranks),
        margin_bytes=device.usable_bytes - used,
        worst_stage=worst,
        peak_phase=ranks[worst].peak_phase,
        stages=stages,
    )
    return memory, 1.0 if short else room[worst]


def _device_memories(pools: Pools, strategy: Strategy) -> list[DeviceMemory]:
    """The device of every pipeline rank; ranks on the same groups share one."""
    batch = batch_of([strategy], mesh_key(strategy))
    situation = pools.situation
    names = strategy.stage_groups or ("",) * strategy.pp
    made: dict[str, DeviceMemory] = {}
    for rank, name in enumerate(names):
        if name not in made:
            device = pools.cluster_of(strategy, rank).device
            made[name] = device_memory(situation.engine, device, situation.job, batch)
    return [made[name] for name in names]


def _stage(at: tuple[tuple[str, ...], Strategy, int], device: DeviceMemory, found: RankMemory) -> StageMemory:
    labels, strategy, rank = at
    groups = strategy.stage_groups
    return StageMemory(
        stage=rank,
        layers=layer_names(labels, strategy, rank),
        allocated_bytes=found.peak_bytes,
        reserved_bytes=float(device.reserved_bytes(found.peak_bytes)),
        device_used_bytes=float(np.max(device.used_bytes(found.peak_bytes))),
        by_cause=found.by_cause,
        by_phase=found.by_phase,
        by_phase_cause=found.by_phase_cause,
        group=groups[rank] if groups else "",
        capacity_bytes=device.capacity_bytes,
    )


def layer_names(labels: tuple[str, ...], strategy: Strategy, rank: int) -> tuple[str, ...]:
    """`embedding`, `dense[0:3]`, `moe[3:7]`, `head`: the layers of one rank in order."""
    names: list[str] = []
    bounds = np.concatenate(([0], np.cumsum(strategy.stages)))
    for stage in stage_table(strategy.schedule, strategy.pp, strategy.vpp)[rank]:
        start, stop = int(bounds[stage]), int(bounds[stage + 1])
        names += ["embedding"] if stage == 0 else []
        first = start
        for block in range(start, stop):
            if block + 1 == stop or labels[block + 1] != labels[block]:
                names.append(f"{labels[block]}[{first}:{block + 1}]")
                first = block + 1
        names += ["head"] if stage == len(strategy.stages) - 1 else []
    return tuple(names)
