"""Simulations: the timeline of one step, with a bounded number of its operations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, StrictInt

from api.questions.sources import PlanSource, asked
from cost_models.errors import BadInput

if TYPE_CHECKING:
    from cost_models.specs.strategy import Strategy, StrategyRequest
    from planner.simulate import Simulation
    from planner.situation import Situation

MAX_OPERATIONS: Final = 100_000
MOST_SIMULATED: Final = 2_000_000
"""Operations of a step that are simulated at most; each takes about 100 bytes and a microsecond or two."""


class SimulationRequest(PlanSource):
    """A plan whose step is simulated; of its operations the first and the last, `max_operations` together."""

    max_operations: Annotated[StrictInt, Field(ge=0, le=MAX_OPERATIONS)] = 5_000


def simulate(request: SimulationRequest, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object of `planner simulate --json` with `timeline`, columns of the operations in order of their start.

    Raises BadInput where the step has too many operations to simulate.
    """
    from planner.simulate import simulate as simulated

    found = asked(request, stored)
    legal = bounded(found.situation, found.strategy)
    simulation = simulated(found.situation, legal)
    return simulation.to_json() | {"timeline": timeline(simulation, request.max_operations)}


def bounded(situation: "Situation", strategy: "StrategyRequest") -> "Strategy":
    """The complete strategy; raises BadInput where its step has too many operations to simulate."""
    from planner.evaluation import Context, complete_legal

    legal = complete_legal(Context.of(situation), strategy)
    batches = legal.num_micro_batches(situation.job.global_batch)
    operations = 2 * batches * legal.pp * legal.vpp
    if operations > MOST_SIMULATED:
        raise BadInput(
            f"a step of {operations:,} operations; at most {MOST_SIMULATED:,} are simulated, give a larger mbs or a "
            "smaller batch",
            pointer="/strategy",
        )
    return legal


def timeline(simulation: "Simulation", most: int) -> dict[str, Any]:
    """Columns of at most `most` operations, the first half of them from the start, the rest from the end.

    `left_out` operations are missing between `gap_s` (where the last of the first ends, where the rest begins);
    `joined` marks a backward whose time is inside the forward before it, `paired` both of them.
    """
    from cost_models.schedule import Phase, stage_of

    made = simulation.operations
    total = len(made.rank)
    kept = list(range(total))
    head = (most + 1) // 2
    gap: list[float] | None = None
    if total > most:
        kept = [*range(head), *range(total - (most - head), total)]
        ends = float(made.end_s[:head].max()) if head else 0.0
        starts = float(made.start_s[total - (most - head)]) if most > head else simulation.step_s
        gap = [min(ends, starts), max(ends, starts)]
    ranks, chunks = made.rank[kept].tolist(), made.chunk[kept].tolist()
    schedule, pp = simulation.strategy.schedule, len(simulation.ranks)
    return {
        "operations": {
            "rank": ranks,
            "phase": [Phase(phase).name.lower() for phase in made.phase[kept].tolist()],
            "chunk": chunks,
            "stage": [stage_of(schedule, pp, r, c) for r, c in zip(ranks, chunks, strict=True)],
            "micro_batch": made.micro_batch[kept].tolist(),
            "start_s": made.start_s[kept].tolist(),
            "end_s": made.end_s[kept].tolist(),
            "joined": made.joined[kept].tolist(),
            "paired": made.paired[kept].tolist(),
        },
        "shown": len(kept),
        "left_out": total - len(kept),
        "gap_s": gap,
        "ranks": [
            {
                "reduction_s": simulation.reduction_s[rank],
                "gather_s": simulation.gather_s[rank],
                "optimizer_s": simulation.optimizer_s[rank],
            }
            for rank in range(pp)
        ],
        "barrier_s": simulation.barrier_s,
        "tail_end_s": simulation.tail_end_s,
    }
