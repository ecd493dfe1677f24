"""Sentences that a user should read before trusting a prediction."""

import math
from collections.abc import Iterator
from typing import Final

from cost_models.host import host_room_bytes
from cost_models.profiles import measured_profile
from cost_models.specs.links import LinkTier
from cost_models.specs.pools import SHARED
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import Strategy
from cost_models.units import format_bytes
from planner.answers import MemoryPrediction
from planner.situation import Situation

SLOWEST_LINK: Final = 1e7
"""Bytes a second below which nobody trains: a tenth of a gigabit."""
FASTEST_PORT: Final = 100e9
"""Bytes a second of the fastest port between nodes that is sold, 800 Gb/s."""
LONGEST_LATENCY_S: Final = 0.5
"""More than once around the earth."""
UNSEEN_VENDOR: Final = "AMD"
"""Vendor of whose devices no published run was fitted."""
PORTED_LATE: Final = ("tp_comm_overlap", "cuda_graphs")
"""Options of Megatron that ROCm/TransformerEngine took over later than the rest (its README, pull request 367)."""
INSIDE_NODES: Final = ("nvlink", "xgmi", "package", "pcie", "nvswitch")
"""Names of tiers that join no nodes."""


def collect_warnings(
    situation: Situation, strategy: Strategy, verdict: str, memory: MemoryPrediction
) -> tuple[str, ...]:
    """Warnings about memory risk, launch-time surprises and what the prediction leaves out."""
    return (
        *_memory(verdict, memory),
        *_host(situation, memory),
        *_model(situation),
        *_without_effect(situation),
        *_batch(situation),
        *_units(situation),
        *_groups(situation, strategy),
        *_strategy(situation, strategy),
        *_pairs(situation, strategy),
        *_vendor(situation),
    )


def _memory(verdict: str, memory: MemoryPrediction) -> Iterator[str]:
    if verdict == "at_risk":
        yield (
            f"memory is at risk: stage {memory.worst_stage} uses {format_bytes(memory.device_used_bytes)} of "
            f"{format_bytes(memory.capacity_bytes)}; set engine.expandable_segments=true or recompute more"
        )


def _pairs(situation: Situation, strategy: Strategy) -> Iterator[str]:
    """Torchtitan refuses activation checkpointing where exchanges of experts run beside another micro-batch."""
    policy = situation.engine.overlap()
    joined = strategy.schedule in policy.pair_schedules and policy.pair_overlap > 0.0
    if (
        situation.engine.name == "torchtitan"
        and joined
        and strategy.ep > 1
        and strategy.recompute.text() != "none"
    ):
        yield (
            f"torchtitan overlaps experts under {strategy.schedule.value} only without activation checkpointing, "
            f"recompute is {strategy.recompute.text()}; set engine.ep_overlap=false or recompute=none"
        )


def _vendor(situation: Situation) -> Iterator[str]:
    """Software that was seen on another vendor's devices, and options that its port took over late."""
    device, generation = situation.cluster.device, situation.generation.name
    if device.vendor != UNSEEN_VENDOR or situation.cluster.is_mixed or measured_profile(device.name):
        return
    yield (
        f"software generation {generation} was seen on NVIDIA devices alone, not on {device.title}: measure a few "
        f"steps and use planner calibrate"
    )
    asked = [name for name in PORTED_LATE if getattr(situation.engine.options, name, False)]
    for name in asked:
        yield f"engine.{name} needs ROCm's Transformer Engine of 2026 or later on {device.title}"


def _host(situation: Situation, memory: MemoryPrediction) -> Iterator[str]:
    room = host_room_bytes(situation.cluster)
    if memory.host_bytes > room and not situation.cluster.is_mixed:
        yield (
            f"offload needs {format_bytes(memory.host_bytes)} of host memory a device, of which a node has "
            f"{format_bytes(room)} for each; offload less"
        )


def _model(situation: Situation) -> Iterator[str]:
    model, job = situation.model, situation.job
    if model.max_seq_len and job.seq_len > model.max_seq_len:
        yield f"sequence length {job.seq_len} exceeds the model's max_position_embeddings {model.max_seq_len}"
    if any(layer.role.value == "mtp" for layer in model.layers) and not job.options.train_mtp:
        yield "multi-token-prediction layers are left out; set job.train_mtp=true to train them"
    if model.is_moe and job.options.moe_imbalance == 1.0:
        yield "experts are taken as evenly loaded; set job.moe_imbalance (for example 1.2) to see a hot rank"


def _without_effect(situation: Situation) -> Iterator[str]:
    """Options that were set but concern something the model does not have."""
    model, options = situation.model, situation.job.options
    lengths = {stack.length for stack in model.stacks}
    moe = ("moe_imbalance", "moe_capacity_factor", "moe_dispatcher", "moe_dispatch_dtype")
    absent = {
        "decoder_seq_len": ("a decoder of its own", "decoder_seq_len" not in lengths),
        "image_size": ("images", not model.is_vision),
        "train_mtp": (
            "multi-token-prediction layers",
            all(layer.role.value != "mtp" for layer in model.layers),
        ),
        **dict.fromkeys(moe, ("experts", not model.is_moe)),
    }
    for name, (what, is_absent) in absent.items():
        if is_absent and getattr(options, name) != type(options).model_fields[name].default:
            yield f"job.{name} has no effect: {model.name} has no {what}"


def _batch(situation: Situation) -> Iterator[str]:
    """A batch that rules data parallelism out altogether."""
    devices, batch = situation.cluster.num_devices, situation.job.global_batch
    if devices > 1 and math.gcd(devices, batch) == 1:
        below = batch // devices * devices
        nearest = " or ".join(str(n) for n in (below, below - devices) if n > 0) or str(devices)
        yield f"no data-parallel size of {devices} devices above 1 divides global batch {batch}; {nearest} would"


def _units(situation: Situation) -> Iterator[str]:
    """Links whose figures look as if they were meant in another unit: GB/s, Gb/s, microseconds."""
    cluster = situation.cluster
    nodes, inner = sum(group.nodes for group in cluster.groups), cluster.tiers[0]
    if len(cluster.tiers) == 1 and nodes > 1 and inner.bytes_per_s.value > FASTEST_PORT:
        yield f"tier {inner.name} is the only one and joins {nodes} nodes; add a tier for the links between nodes"
    tiers = dict.fromkeys(tier for group in range(len(cluster.groups)) for tier in cluster.tiers_of(group))
    for tier in tiers:
        rate, latency = tier.bytes_per_s.value, tier.latency_s.value
        if rate < SLOWEST_LINK:
            yield f"tier {tier.name} sends {rate:g} bytes a second; bytes_per_s counts bytes, 300e9 is 300 GB/s"
        elif rate > FASTEST_PORT and tier != cluster.tiers[0] and tier.name not in INSIDE_NODES:
            yield (
                f"tier {tier.name} sends {rate / 1e9:g} GB/s from each device, more than any port between nodes; "
                f"ports are sold in bits: 200 Gb/s is 25e9 bytes a second"
            )
        if latency >= LONGEST_LATENCY_S:
            yield f"tier {tier.name} has a latency of {latency:g} s; latency_s counts seconds, 5e-6 is 5 us"


def _groups(situation: Situation, strategy: Strategy) -> Iterator[str]:
    """Device groups that a strategy leaves idle, and why where they cannot be used."""
    cluster, precision = situation.cluster, situation.job.precision.value
    if not cluster.is_mixed:
        return
    used = {name for text in strategy.stage_groups for name in text.split(SHARED)}
    for index, (name, group) in enumerate(zip(cluster.group_names, cluster.groups, strict=True)):
        if name not in used:
            device = cluster.device_of(index)
            why = "" if device.supports(precision) else f": {device.title} has no {precision}"
            yield f"the {group.num_devices} devices of group {name} are left unused{why}"


def _strategy(situation: Situation, strategy: Strategy) -> Iterator[str]:
    per_domain = min(tiers[0].devices_per_domain for tiers in _tiers(situation, strategy))
    if strategy.tp > per_domain:
        yield f"tp {strategy.tp} leaves the {per_domain}-device domain of the fastest links"
    full, most = strategy.recompute.full, max(strategy.stages)
    if isinstance(full, int) and most < full != ALL_LAYERS:
        yield f"recompute full:{full} is more than the {most} layers of any stage; it means full:{most}"
    if strategy.dp == 1 and strategy.cp == 1 and strategy.zero and situation.cluster.num_devices > 1:
        yield f"zero {strategy.zero} with dp 1 shards nothing: every rank keeps all of its optimizer states"


def _tiers(situation: Situation, strategy: Strategy) -> list[tuple[LinkTier, ...]]:
    """Tiers of every device group in use."""
    cluster = situation.cluster
    used = {name for text in strategy.stage_groups for name in text.split(SHARED)}
    names = enumerate(cluster.group_names)
    return [cluster.tiers_of(index) for index, name in names if not used or name in used]
