"""From an objective's name to its search."""

from collections.abc import Callable, Mapping

from planner.answers import PlanResult
from planner.objectives.asking import Asking
from planner.objectives.fewest import fewest_devices
from planner.objectives.front import with_front
from planner.objectives.largest import largest_batch, longest_sequence
from planner.objectives.leanest import least_memory
from planner.objectives.oracle import Report, StepOracle
from planner.objectives.proof import with_run
from planner.objectives.scaled import least_scaled
from planner.request import SearchRequest
from planner.situation import Situation

SEARCHES: Mapping[str, Callable[[Asking], PlanResult]] = {
    "cost": least_scaled,
    "cost_per_token": least_scaled,
    "energy": least_scaled,
    "goodput": least_scaled,
    "devices": fewest_devices,
    "batch": largest_batch,
    "seq_len": longest_sequence,
    "memory": least_memory,
}


def plan_for(situation: Situation, search: SearchRequest, oracle: StepOracle, report: Report) -> PlanResult:
    """The best plan for any objective, with a proof in the objective's own unit, the run and the front if asked for."""
    asking = Asking(situation, search, oracle, report)
    if search.objective == "step_time":
        result = with_run(oracle.fastest(situation, search, report), asking)
    else:
        result = SEARCHES[search.objective](asking)
    return with_front(result, asking) if search.pareto else result
