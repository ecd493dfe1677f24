"""Predict what strategies cost: legality, seconds and where they go, bytes and what they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.chunk import TIME_CAUSES, MeshCosts, stage_rows
from cost_models.device_memory import verdict
from cost_models.engines import Facts, complete, option_values
from cost_models.errors import IllegalStrategy
from cost_models.mesh import MeshBatch, MeshKey, batch_of, mesh_key
from cost_models.mesh_costs import batch_rules, mesh_costs
from cost_models.pricing import Pricer
from cost_models.rows import model_rows
from cost_models.specs.strategy import Strategy, StrategyRequest
from cost_models.step import StepCosts, step_costs, virtual_stage
from planner.answers import BREAKDOWN_CAUSES, Prediction
from planner.intervals import step_interval
from planner.memory import predict_memory
from planner.pools import CostsOfRow, Pools, peak_flops
from planner.provenance import profile_warnings, provenance
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
        costs_of = context.costs_of(batch_of([strategy for _, strategy in members], key))
        for row, (index, strategy) in enumerate(members):
            results[index] = predict(context, strategy, costs_of(row))
    return [result for result in results if result is not None]


@dataclass(frozen=True, slots=True)
class Context:
    """What all predictions of one situation share."""

    situation: Situation
    facts: Facts
    pricer: Pricer
    pools: Pools
    model_flops: float
    parameters: int
    active_parameters: int
    labels: tuple[str, ...]

    def costs_of(self, batch: MeshBatch) -> CostsOfRow:
        """Prices a batch; the costs of its meshes one by one."""
        if batch.key.pools:
            return self.pools.costs_of(batch)
        priced = self.pricer.price(batch)
        rules = batch_rules(self.pricer, priced)
        return lambda row: mesh_costs(self.pricer, priced, rules, row)

    def mesh_of(self, strategy: Strategy) -> MeshCosts:
        """The costs of one strategy's mesh."""
        return self.costs_of(batch_of([strategy], mesh_key(strategy)))(0)

    @classmethod
    def of(cls, situation: Situation, *, allow_at_risk: bool = False) -> "Context":
        """Load the curves and count the model once."""
        model, job = situation.model, situation.job
        pools = Pools(situation, allow_at_risk)
        counts = situation.counts
        mtp = counts.mtp if job.options.train_mtp else 0
        return cls(
            situation,
            situation.facts,
            pools.whole(),
            pools,
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
    memory, probability = predict_memory(context.pools, context.labels, strategy, mesh)
    found = verdict(probability, job.options.max_oom_probability)
    rank, breakdown, recompute_s = _breakdown(mesh, strategy, costs)
    devices = strategy.world_size
    flops_rate = context.model_flops / (costs.step_s * devices)
    peak = peak_flops(situation.cluster, strategy, job.precision.value) / devices
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
        mfu=flops_rate / peak,
        breakdown_s=breakdown,
        recompute_s=recompute_s,
        critical_stage=rank,
        memory=memory,
        strategy=strategy,
        parameters=context.parameters,
        active_parameters=context.active_parameters,
        provenance=provenance(situation, context.pricer, strategy),
        assumed=situation.model.assumed,
        options=option_values(situation.engine, job),
        engine=f"{situation.engine.name}@{situation.engine.version}",
        warnings=(
            *collect_warnings(situation, strategy, found, memory),
            *profile_warnings(context.pricer, strategy),
        ),
        reader=situation.model.reader,
    )


def _breakdown(mesh: MeshCosts, strategy: Strategy, costs: StepCosts) -> tuple[int, dict[str, float], float]:
    """The rank with the least idle time, its exposed seconds by cause (they sum to the step), its recompute."""
    rules, micro = mesh.rules, mesh.num_micro_batches
    raw = costs.step_s / rules.straggler_factor
    busy = np.asarray(costs.timeline.rank_busy_s).reshape(mesh.pp)
    idle = raw - rules.step_fixed_s - busy - costs.sync_exposed_s - costs.tail_s
    rank = int(np.argmin(idle))
    own = mesh.of_rank(rank)
    parts, recompute_s = _rank_parts(own, strategy, rank)
    ways_s = (mesh.pp - 1) * rules.send_s if mesh.link_s is None else float(mesh.link_s[:-1].sum())
    delays = min(max(float(idle[rank]), 0.0), 2.0 * ways_s)
    shown = micro * mesh.vpp * (own.rules.chunk_forward_s + own.rules.chunk_backward_s)
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
    causes["dp_communication"] += 2.0 * micro * mesh.vpp * own.rules.meeting_s
    causes["pp_communication"] += delays + shown
    causes["optimizer"] = optimizer
    waiting = float(idle[rank]) - delays
    causes["pp_bubble"] = waiting if waiting > ROUNDING * costs.step_s else 0.0
    causes["other"] = rules.step_fixed_s + costs.step_s - raw
    return rank, causes, micro * recompute_s


def _rank_parts(mesh: MeshCosts, strategy: Strategy, rank: int) -> tuple[np.ndarray, float]:
    """Seconds of one micro-batch on one rank by cause (forward + backward + recompute), and recompute alone."""
    table = mesh.table
    (start, stop), full = stage_rows(strategy.stages), strategy.full_layers()
    parts = np.zeros(len(TIME_CAUSES))
    recompute_s = 0.0
    for stage in virtual_stage(mesh)[rank]:
        first, last = int(start[stage]), int(stop[stage])
        again = slice(max(first, 1), max(first, 1) + full[stage])
        parts += (table.forward_parts_s + table.backward_parts_s)[:, first:last].sum(1)
        parts += table.full_parts_s[:, again].sum(1)
        recompute_s += float(table.base_recompute_s[first:last].sum() + table.full_parts_s[:, again].sum())
    return parts, recompute_s
