"""Predict what strategies cost: legality, seconds and where they go, bytes and what they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import TIME_CAUSES, MeshCosts, rows_of
from cost_models.device_memory import DeviceMemory, device_memory, verdict
from cost_models.engines import Facts, complete, option_values
from cost_models.errors import IllegalStrategy
from cost_models.host import host_room_bytes
from cost_models.memory import RankMemory, rank_memory
from cost_models.mesh import MeshKey, batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.pricing import Pricer
from cost_models.rows import model_rows
from cost_models.schedule import stage_table
from cost_models.specs.strategy import Strategy, StrategyRequest
from cost_models.step import StepCosts, step_costs, virtual_stage
from planner.intervals import step_interval
from planner.plan import BREAKDOWN_CAUSES, MemoryPrediction, Prediction, StageMemory
from planner.provenance import provenance
from planner.situation import Situation
from planner.warnings import collect_warnings

ROUNDING = 1e-12
"""Idle time below this share of the step is the rounding of sums, not a bubble."""


def evaluate(situation: Situation, strategy: StrategyRequest | Strategy) -> Prediction:
    """The prediction of one strategy; raises IllegalStrategy with the broken rules."""
    (found,) = evaluate_many(situation, [strategy])
    if isinstance(found, IllegalStrategy):
        raise found
    return found


def evaluate_many(
    situation: Situation, strategies: Sequence[StrategyRequest | Strategy]
) -> list[Prediction | IllegalStrategy]:
    """Predictions in the order of `strategies`; an illegal one gives its error instead. Priced together, in bulk."""
    context = Context.of(situation)
    results: list[Prediction | IllegalStrategy | None] = [None] * len(strategies)
    groups: dict[MeshKey, list[tuple[int, Strategy]]] = {}
    for index, request in enumerate(strategies):
        try:
            strategy = complete_legal(context, request)
        except IllegalStrategy as refusal:
            results[index] = refusal
        else:
            groups.setdefault(mesh_key(strategy), []).append((index, strategy))
    for key, members in groups.items():
        batch = batch_of([strategy for _, strategy in members], key)
        priced = context.pricer.price(batch)
        rules = batch_rules(context.pricer, priced)
        for row, (index, strategy) in enumerate(members):
            mesh = mesh_costs(context.pricer, priced, rules, row)
            results[index] = predict(context, strategy, mesh)
    return [result for result in results if result is not None]


@dataclass(frozen=True, slots=True)
class Context:
    """What all predictions of one situation share."""

    situation: Situation
    facts: Facts
    pricer: Pricer
    model_flops: float
    parameters: int
    active_parameters: int
    labels: tuple[str, ...]

    @classmethod
    def of(cls, situation: Situation, *, allow_at_risk: bool = False) -> "Context":
        """Load the curves and count the model once."""
        model, cluster, job = situation.model, situation.cluster, situation.job
        prices = (situation.engine, situation.efficiency, situation.network, allow_at_risk)
        counts = situation.counts
        mtp = counts.mtp if job.options.train_mtp else 0
        return cls(
            situation,
            situation.facts,
            Pricer(model, cluster, job, *prices),
            situation.model_flops,
            counts.parameters + mtp,
            counts.active,
            model_rows(model, job).labels,
        )


def complete_legal(context: Context, request: StrategyRequest | Strategy) -> Strategy:
    """The complete strategy, checked by the engine's rules."""
    engine = context.situation.engine
    strategy = request if isinstance(request, Strategy) else complete(engine, context.facts, request)
    engine.check_strategy(context.facts, strategy)
    return strategy


def predict(context: Context, strategy: Strategy, mesh: MeshCosts) -> Prediction:
    """Put seconds, bytes and rates of one priced strategy together."""
    situation, job = context.situation, context.situation.job
    costs = step_costs(mesh, strategy.stages, strategy.full_layers())
    device = device_memory(
        situation.engine, situation.cluster.device, job, batch_of([strategy], mesh_key(strategy))
    )
    memory = _memory(context, strategy, mesh, device)
    probability = device.oom_probability(memory.peak_allocated_bytes)
    if memory.host_bytes > host_room_bytes(situation.cluster):
        probability = 1.0
    found = verdict(probability, job.options.max_oom_probability)
    rank, breakdown, recompute_s = _breakdown(mesh, strategy, costs)
    devices = situation.cluster.num_devices
    flops_rate = context.model_flops / (costs.step_s * devices)
    low, high = step_interval(costs.step_s, breakdown, situation)
    tokens = job.tokens_per_step
    return Prediction(
        fits=found != "does_not_fit",
        verdict=found,
        oom_probability=probability,
        step_s=costs.step_s,
        step_s_low=low,
        step_s_high=high,
        tokens_per_s_per_device=tokens / (costs.step_s * devices) if tokens else None,
        samples_per_s_per_device=job.global_batch / (costs.step_s * devices),
        model_flops_per_s_per_device=flops_rate,
        mfu=flops_rate / situation.cluster.device.peak(job.precision.value),
        breakdown_s=breakdown,
        recompute_s=recompute_s,
        critical_stage=rank,
        memory=memory,
        strategy=strategy,
        parameters=context.parameters,
        active_parameters=context.active_parameters,
        provenance=provenance(situation, context.pricer),
        assumed=situation.model.assumed,
        options=option_values(situation.engine, job),
        engine=f"{situation.engine.name}@{situation.engine.version}",
        warnings=collect_warnings(situation, strategy, found, memory),
        reader=situation.model.reader,
    )


def _memory(context: Context, strategy: Strategy, mesh: MeshCosts, device: DeviceMemory) -> MemoryPrediction:
    """Memory of every pipeline rank, the worst one in front."""
    ranks = [rank_memory(mesh, strategy.stages, strategy.full_layers(), rank) for rank in range(strategy.pp)]
    stages = tuple(_stage(context, strategy, device, rank, found) for rank, found in enumerate(ranks))
    worst = max(range(len(ranks)), key=lambda rank: ranks[rank].peak_bytes)
    peak = ranks[worst].peak_bytes
    used = float(np.max(device.used_bytes(peak)))
    return MemoryPrediction(
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


def _stage(
    context: Context, strategy: Strategy, device: DeviceMemory, rank: int, found: RankMemory
) -> StageMemory:
    return StageMemory(
        stage=rank,
        layers=_layer_names(context, strategy, rank),
        allocated_bytes=found.peak_bytes,
        reserved_bytes=float(device.reserved_bytes(found.peak_bytes)),
        device_used_bytes=float(np.max(device.used_bytes(found.peak_bytes))),
        by_cause=found.by_cause,
        by_phase=found.by_phase,
    )


def _layer_names(context: Context, strategy: Strategy, rank: int) -> tuple[str, ...]:
    """`embedding`, `dense[0:3]`, `moe[3:7]`, `head`: the layers of one rank in order."""
    names: list[str] = []
    bounds = np.concatenate(([0], np.cumsum(strategy.stages)))
    for stage in stage_table(strategy.schedule, strategy.pp, strategy.vpp)[rank]:
        start, stop = int(bounds[stage]), int(bounds[stage + 1])
        names += ["embedding"] if start == 0 else []
        first = start
        for block in range(start, stop):
            if block + 1 == stop or context.labels[block + 1] != context.labels[block]:
                names.append(f"{context.labels[block]}[{first}:{block + 1}]")
                first = block + 1
        names += ["head"] if stop == len(context.labels) else []
    return tuple(names)


def _breakdown(mesh: MeshCosts, strategy: Strategy, costs: StepCosts) -> tuple[int, dict[str, float], float]:
    """The rank with the least idle time, its exposed seconds by cause (they sum to the step), its recompute."""
    rules, micro = mesh.rules, mesh.num_micro_batches
    raw = costs.step_s / rules.straggler_factor
    busy = np.asarray(costs.timeline.rank_busy_s).reshape(mesh.pp)
    idle = raw - rules.step_fixed_s - busy - costs.sync_exposed_s - costs.tail_s
    rank = int(np.argmin(idle))
    parts, recompute_s = _rank_parts(mesh, strategy, rank)
    delays = min(max(float(idle[rank]), 0.0), 2.0 * (mesh.pp - 1) * rules.send_s)
    shown = micro * mesh.vpp * (rules.chunk_forward_s + rules.chunk_backward_s)
    optimizer = float(costs.chunks.optimizer_s[rank].sum())
    causes = dict.fromkeys(BREAKDOWN_CAUSES, 0.0)
    for name, seconds in zip(TIME_CAUSES, micro * parts, strict=True):
        causes[name] += float(seconds)
    if mesh.table.forward_spare_s is not None:  # passes in no pair show all of their exchange
        alone = float(busy[rank]) - micro * float(
            (costs.chunks.forward_s + costs.chunks.backward_s)[rank].sum()
        )
        causes["ep_communication"] += alone
    causes["dp_communication"] += float(costs.sync_exposed_s[rank] + costs.tail_s[rank]) - optimizer
    causes["pp_communication"] += delays + shown
    causes["optimizer"] = optimizer
    waiting = float(idle[rank]) - delays
    causes["pp_bubble"] = waiting if waiting > ROUNDING * costs.step_s else 0.0
    causes["other"] = rules.step_fixed_s + costs.step_s - raw
    return rank, causes, micro * recompute_s


def _rank_parts(mesh: MeshCosts, strategy: Strategy, rank: int) -> tuple[np.ndarray, float]:
    """Seconds of one micro-batch on one rank by cause (forward + backward + recompute), and recompute alone."""
    table = mesh.table
    bounds = np.concatenate(([0], np.cumsum(strategy.stages)))
    full = strategy.full_layers()
    parts = np.zeros(len(TIME_CAUSES))
    recompute_s = 0.0
    for stage in virtual_stage(mesh)[rank]:
        first, last = (int(x) for x in rows_of(bounds[stage], bounds[stage + 1], table.num_blocks))
        again = slice(int(bounds[stage]) + 1, int(bounds[stage]) + 1 + full[stage])
        parts += (table.forward_parts_s + table.backward_parts_s)[:, first:last].sum(1)
        parts += table.full_parts_s[:, again].sum(1)
        recompute_s += float(table.base_recompute_s[first:last].sum() + table.full_parts_s[:, again].sum())
    return parts, recompute_s
