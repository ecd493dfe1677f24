"""From an objective's name to its search."""

from planner.objectives.oracle import Report, StepOracle
from planner.plan import PlanResult
from planner.request import SearchRequest
from planner.situation import Situation


def plan_for(situation: Situation, search: SearchRequest, oracle: StepOracle, report: Report) -> PlanResult:
    """The best plan for an objective other than step time, with a proof in the objective's own unit."""
    return oracle.fastest(situation, search, report)
