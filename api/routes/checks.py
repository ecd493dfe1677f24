"""Checks: one strategy, or a plan of this server, against limits and a baseline."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.deps import StoreDep, WorkDep
from api.routes.evaluations import parsed_strategy
from api.routes.plans import stored_plan
from api.schemas import CheckRequest
from api.strict_route import StrictRoute
from cost_models.errors import IllegalStrategy
from planner.answers import finite

router = APIRouter(prefix="/v1/checks", tags=["checks"], route_class=StrictRoute)


@router.post("", response_model=dict[str, Any])
async def check_strategy(request: CheckRequest, store: StoreDep, work: WorkDep) -> JSONResponse:
    """The object of `planner check --json`; `passed` is the answer."""
    plan = None if request.plan_id is None else stored_plan(store, request.plan_id).envelope
    report = await work.evaluate(lambda: checked(request, plan))
    return JSONResponse(finite(report))


def checked(request: CheckRequest, plan: Mapping[str, Any] | None) -> dict[str, Any]:
    """The report; raises BadInput, an IllegalStrategy among them."""
    from planner.checking import Limits, check
    from planner.plan_file import parse_plan
    from planner.situation import resolve

    if plan is not None:
        stored = parse_plan(plan)
        strategy = parsed_strategy(dict(stored.best_strategy()))
        situation = resolve(stored.request.model, stored.request.cluster, stored.request.job)
    elif request.model and request.cluster and request.job and request.strategy:
        strategy = parsed_strategy(request.strategy)
        situation = resolve(request.model, request.cluster, request.job, reader="plain")
    else:
        raise RuntimeError("the schema admits no request without a question")
    if isinstance(strategy, IllegalStrategy):
        raise strategy
    limits = Limits(request.max_memory_fraction, request.fail_at_risk, request.max_slowdown)
    return check(situation, strategy, limits, request.baseline).to_json()
