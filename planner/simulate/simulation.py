"""One strategy simulated operation by operation; its step is the one that `evaluate` predicts."""

from dataclasses import asdict, dataclass

import numpy as np

from cost_models.chunk import MeshCosts
from cost_models.schedule import OperationTimeline, in_flight, simulate_operations
from cost_models.specs.strategy import Strategy, StrategyRequest
from cost_models.step import StepCosts, durations_of, step_costs
from planner.evaluation import Context, complete_legal
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """What one pipeline rank does in a step; seconds of the step, without the wait for the slowest rank.

    busy + bubble + reduction_exposed + tail + fixed + straggler of the step = step. `bubble_s` holds all idle time
    between the operations and before the barrier, the time that boundary tensors travel included.
    `in_flight_peak` counts activations of chunks, `in_flight_by_chunk` the most of each chunk alone.
    """

    rank: int
    operations: int
    busy_s: float
    bubble_s: float
    bubble_fraction: float
    reduction_exposed_s: float
    tail_s: float
    in_flight_peak: int
    in_flight_by_chunk: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A simulated step.

    `step_s` is that of `evaluate`, and `makespan_s` the end of the last thing in the timeline, which is the same;
    `send_s` is what a boundary tensor takes between ranks, `link_s` the same of each link where they differ (i between
    ranks i and i + 1, the last between the last and the first). `pipeline_s` ends with the last backward, `barrier_s`
    with the last gradient reduction, `tail_end_s` with the longest optimizer step.
    """

    strategy: Strategy
    num_micro_batches: int
    step_s: float
    pipeline_s: float
    barrier_s: float
    tail_end_s: float
    fixed_s: float
    straggler_s: float
    send_s: float
    link_s: tuple[float, ...] | None
    ranks: tuple[RankTimeline, ...]
    operations: OperationTimeline
    reduction_s: tuple[float, ...]
    gather_s: tuple[float, ...]
    optimizer_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        """End of the timeline."""
        return self.step_s

    def to_json(self) -> dict[str, object]:
        """The JSON object of `planner simulate`; operations are counted, not listed (a trace lists them)."""
        return {
            "makespan_s": self.makespan_s,
            "step_s": self.step_s,
            "pipeline_s": self.pipeline_s,
            "fixed_s": self.fixed_s,
            "straggler_s": self.straggler_s,
            "send_s": self.send_s,
            "schedule": str(self.strategy.schedule),
            "micro_batches": self.num_micro_batches,
            "operations": len(self.operations.rank),
            "bubble_s": [rank.bubble_s for rank in self.ranks],
            "bubble_fraction": [rank.bubble_fraction for rank in self.ranks],
            "in_flight_peak": [rank.in_flight_peak for rank in self.ranks],
            "ranks": [asdict(rank) for rank in self.ranks],
            "strategy": self.strategy.to_json(),
        }


def simulate(situation: Situation, strategy: StrategyRequest | Strategy) -> Simulation:
    """The timeline of one strategy; raises IllegalStrategy with the broken rules."""
    context = Context.of(situation)
    legal = complete_legal(context, strategy)
    return simulation_of(context.mesh_of(legal), legal)


def simulation_of(mesh: MeshCosts, strategy: Strategy) -> Simulation:
    """The timeline of a priced mesh with the stages and recompute of a strategy."""
    costs = step_costs(mesh, strategy.stages, strategy.full_layers())
    point = (mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    timeline = simulate_operations(*point, durations_of(mesh, costs.chunks))
    ends = np.asarray(costs.timeline.rank_end_s).reshape(mesh.pp)
    barrier = float((ends + costs.sync_exposed_s).max())
    tail_end = barrier + float(costs.tail_s.max())
    fixed = mesh.rules.step_fixed_s
    return Simulation(
        strategy=strategy,
        num_micro_batches=mesh.num_micro_batches,
        step_s=costs.step_s,
        pipeline_s=float(ends.max()),
        barrier_s=barrier,
        tail_end_s=tail_end,
        fixed_s=fixed,
        straggler_s=costs.step_s - tail_end - fixed,
        send_s=mesh.rules.send_s,
        link_s=None if mesh.link_s is None else tuple(float(seconds) for seconds in mesh.link_s),
        ranks=_ranks(mesh, costs, timeline, tail_end),
        operations=timeline,
        reduction_s=_of_ranks(costs.chunks.sync_s),
        gather_s=_of_ranks(costs.chunks.gather_s),
        optimizer_s=_of_ranks(costs.chunks.optimizer_s),
    )


def _ranks(
    mesh: MeshCosts, costs: StepCosts, timeline: OperationTimeline, tail_end_s: float
) -> tuple[RankTimeline, ...]:
    counts = np.bincount(timeline.rank, minlength=mesh.pp)
    busy = np.asarray(costs.timeline.rank_busy_s).reshape(mesh.pp)
    idle = np.maximum(tail_end_s - busy - costs.sync_exposed_s - costs.tail_s, 0.0)
    held = in_flight(mesh.schedule, mesh.pp, mesh.vpp, mesh.num_micro_batches)
    return tuple(
        RankTimeline(
            rank=rank,
            operations=int(counts[rank]),
            busy_s=float(busy[rank]),
            bubble_s=float(idle[rank]),
            bubble_fraction=float(idle[rank]) / costs.step_s,
            reduction_exposed_s=float(costs.sync_exposed_s[rank]),
            tail_s=float(costs.tail_s[rank]),
            in_flight_peak=held.peak_total(rank),
            in_flight_by_chunk=tuple(max(column) for column in zip(*held.vectors[rank], strict=True)),
        )
        for rank in range(mesh.pp)
    )


def _of_ranks(chunks: np.ndarray) -> tuple[float, ...]:
    return tuple(float(seconds) for seconds in chunks.sum(axis=1))
