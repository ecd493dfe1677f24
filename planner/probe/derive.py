"""The smallest run that shows what the plan's fullest stage holds and how long its layers take.

Of all shapes on the devices given, and of all numbers of blocks, the probe is the one whose fullest device is nearest
by cause: sum over causes of |probe - plan| / plan's peak. Bytes grow with the number of blocks nearly in a straight
line, so two prices give the best number; of probes within two percent of the nearest the one on the fewest devices is
taken.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cost_models.errors import BadInput
from cost_models.schedule import in_flight, stage_table
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.pools import SHARED
from cost_models.specs.strategy import Strategy, strategy_from_mapping
from planner.answers import Prediction, StageMemory
from planner.evaluation import Context, evaluate
from planner.probe.shapes import Shape, micro_batches, probe_strategy, shapes
from planner.probe.shrink import shrunk
from planner.situation import Situation, situate

AS_NEAR: Final = 0.02
MORE_BLOCKS: Final = 2
"""A probe may hold so many times the blocks of the plan's stage on a device."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A small run beside the plan it stands for."""

    plan: Prediction
    situation: Situation
    prediction: Prediction
    plan_layer_s: float
    probe_layer_s: float
    distance: float

    @property
    def planned(self) -> StageMemory:
        """The plan's fullest stage."""
        return self.plan.memory.stages[self.plan.memory.worst_stage]

    @property
    def shown(self) -> StageMemory:
        """The probe's fullest stage."""
        return self.prediction.memory.stages[self.prediction.memory.worst_stage]


def derive_probe(situation: Situation, plan: Prediction, devices: int) -> Probe:
    """The probe of a plan on at most so many devices; raises BadInput where there is none."""
    worst = plan.memory.worst_stage
    if not blocks_of(plan.strategy, worst):
        alone = " and ".join(plan.memory.stages[worst].layers)
        raise BadInput(
            f"the plan's fullest stage, {worst}, holds the {alone} without a layer, which no smaller run shows; probe "
            "a plan whose fullest stage holds layers (pin another pp or stages)",
            pointer="/strategy/stages",
        )
    found = shapes(situation, plan.strategy, devices, in_flight_on(situation, plan))
    tried = [probe for shape in found for probe in _of(situation, plan, shape)]
    if not tried:
        raise BadInput(
            f"no layout on {devices} devices keeps the plan's tensor and expert shards and fits; give more --devices",
            pointer="/devices",
        )
    nearest = min(probe.distance for probe in tried)
    as_near = [probe for probe in tried if probe.distance <= nearest + AS_NEAR]
    return min(as_near, key=lambda p: (p.situation.cluster.num_devices, p.distance))


def in_flight_on(situation: Situation, plan: Prediction) -> int:
    """Micro-batches whose activations the plan's fullest stage keeps at once; parts of one count as one."""
    strategy = plan.strategy
    count = strategy.num_micro_batches(situation.job.global_batch)
    held = in_flight(strategy.schedule, strategy.pp, strategy.vpp, count).split_vectors[
        plan.memory.worst_stage
    ]
    most = float(np.asarray(held, dtype=float).sum(-1).max())
    return math.ceil(most / strategy.vpp)


def _of(situation: Situation, plan: Prediction, shape: Shape) -> Iterator[Probe]:
    """The nearest probe of one shape, if any is legal and fits."""
    worst = plan.memory.worst_stage
    held = blocks_of(plan.strategy, worst)
    least = shape.vpp
    whole = max(len(held) // least, 2) * least
    points = [_priced(situation, plan, shape, held, blocks) for blocks in (least, whole)]
    if any(point is None for point in points):
        return
    first, second = (point[1] for point in points if point is not None)
    blocks = _best_blocks(plan.memory.stages[worst], (first, second), (least, whole))
    for count in dict.fromkeys((blocks, blocks - least, len(held), least)):
        found = _priced(situation, plan, shape, held, max(count, least))
        if found is not None and found[1].fits:
            yield _probe(situation, plan, found)
            return


def _priced(
    situation: Situation, plan: Prediction, shape: Shape, held: list[int], blocks: int
) -> tuple[Situation, Prediction] | None:
    """The probe with so many blocks a rank, or None where it is not legal."""
    strategy = plan.strategy
    per_rank = [held[index % len(held)] for index in range(blocks)]
    job = situation.job_request
    count = micro_batches(strategy, shape, strategy.num_micro_batches(job.global_batch))
    changed = {"global_batch": strategy.mbs * shape.dp * count}
    if job.seq_len is not None:
        changed["seq_len"] = shape.seq_len
    try:
        small = situate(
            shrunk(situation.model, _in_order(per_rank, shape), shape.experts or situation.model.num_experts),
            home(situation.cluster, strategy, plan.memory.worst_stage).with_devices(
                shape.devices(strategy.tp)
            ),
            job.model_copy(update=changed),
        )
        stated = probe_strategy(strategy, shape, blocks, plan.memory.worst_stage)
        return small, evaluate(small, strategy_from_mapping(stated))
    except BadInput:
        return None


def home(cluster: ClusterSpec, strategy: Strategy, rank: int) -> ClusterSpec:
    """The part of a cluster that a pipeline rank runs on: one device group; raises BadInput where it has several."""
    if len(cluster.groups) == 1:
        return cluster
    names = strategy.stage_groups[rank].split(SHARED)
    if len(names) > 1:
        detail = f"stage {rank} lies on the device groups {' and '.join(names)}, which no small run shows"
        raise BadInput(f"{detail}; probe a plan whose stages lie on one each", pointer="/cluster")
    index = cluster.group_names.index(names[0])
    group = cluster.groups[index].model_copy(update={"tiers": ()})
    tiers = cluster.tiers_of(index)
    return cluster.model_copy(
        update={"name": f"{cluster.name}-{names[0]}", "groups": (group,), "tiers": tiers}
    )


def _in_order(per_rank: list[int], shape: Shape) -> list[int]:
    """Blocks of all ranks in the order of the model: chunk by chunk, and rank by rank inside."""
    per_chunk, extra = divmod(len(per_rank), shape.vpp)
    bounds = np.cumsum([0, *(per_chunk + (chunk < extra) for chunk in range(shape.vpp))])
    chunks = [per_rank[bounds[c] : bounds[c + 1]] for c in range(shape.vpp)]
    return [block for chunk in chunks for _ in range(shape.pp) for block in chunk]


def blocks_of(strategy: Strategy, rank: int) -> list[int]:
    """Indices of the blocks that a pipeline rank holds."""
    starts = np.concatenate(([0], np.cumsum(strategy.stages)))
    held = stage_table(strategy.schedule, strategy.pp, strategy.vpp)[rank]
    return [block for stage in held for block in range(int(starts[stage]), int(starts[stage + 1]))]


def _best_blocks(wanted: StageMemory, points: tuple[Prediction, Prediction], counts: tuple[int, int]) -> int:
    """The number of blocks whose bytes, on the line through the prices of two counts, are nearest by cause."""
    near, far = (_worst(point).by_cause for point in points)
    least, whole = counts

    def distance(blocks: int) -> float:
        share = (blocks - least) / (whole - least)
        line = {cause: near[cause] + share * (far.get(cause, 0.0) - near[cause]) for cause in near}
        return apart(wanted.by_cause, line)

    return min(range(least, MORE_BLOCKS * whole + 1, least), key=distance)


def apart(wanted: Mapping[str, float], found: Mapping[str, float]) -> float:
    """Sum over causes of the differences, as a share of the wanted total."""
    causes = {*wanted, *found}
    total = sum(wanted.values()) or 1.0
    return sum(abs(wanted.get(cause, 0.0) - found.get(cause, 0.0)) for cause in causes) / total


def _probe(situation: Situation, plan: Prediction, found: tuple[Situation, Prediction]) -> Probe:
    small, prediction = found
    planned = plan.memory.stages[plan.memory.worst_stage]
    return Probe(
        plan,
        small,
        prediction,
        layer_s(situation, plan.strategy, plan.memory.worst_stage),
        layer_s(small, prediction.strategy, prediction.memory.worst_stage),
        apart(planned.by_cause, _worst(prediction).by_cause),
    )


def layer_s(situation: Situation, strategy: Strategy, rank: int) -> float:
    """Mean seconds of one block of a pipeline rank, forward and backward of one micro-batch, recompute included."""
    table = Context.of(situation).mesh_of(strategy).of_rank(rank).table
    starts = np.concatenate(([0], np.cumsum(strategy.stages)))
    full = strategy.full_layers()
    total, count = 0.0, 0
    for stage in stage_table(strategy.schedule, strategy.pp, strategy.vpp)[rank]:
        first, last = int(starts[stage]) + 1, int(starts[stage + 1]) + 1
        total += float((table.forward_parts_s + table.backward_parts_s)[:, first:last].sum())
        total += float(table.full_parts_s[:, first : first + full[stage]].sum())
        count += last - first
    return total / max(count, 1)


def _worst(prediction: Prediction) -> StageMemory:
    return prediction.memory.stages[prediction.memory.worst_stage]
