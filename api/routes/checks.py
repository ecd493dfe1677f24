"""Checks: one strategy, or a plan, against limits and a baseline."""

from fastapi import APIRouter, Response

from api.answers import CheckBody
from api.deps import CallerDep, PlansDep, WorkDep
from api.questions.checks import CheckRequest, check
from api.routes.answer import answer_json
from api.routes.stored import stored_document
from api.strict_route import StrictRoute

router = APIRouter(prefix="/v1/checks", tags=["checks"], route_class=StrictRoute)


@router.post("", response_model=CheckBody)
async def check_strategy(
    request: CheckRequest, plans: PlansDep, caller: CallerDep, work: WorkDep
) -> Response:
    """The object of `planner check --json`; `passed` is the answer."""
    stored = await stored_document(plans, caller, request.plan_id)
    return await answer_json(work, lambda: check(request, stored))
