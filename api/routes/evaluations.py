"""Evaluations: what strategies cost, many at once."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from api.answers import EvaluationsBody
from api.deps import WorkDep
from api.errors import problem_of_bad_input
from api.questions.evaluations import EvaluationRequest, evaluate_all
from api.routes.answer import answer_json
from api.strict_route import StrictRoute
from cost_models.errors import IllegalStrategy

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"], route_class=StrictRoute)


@router.post("", response_model=EvaluationsBody)
async def evaluate_strategies(request: EvaluationRequest, work: WorkDep) -> Response:
    """One `{evaluation}` or `{problem}` a strategy, in order."""
    return await answer_json(work, lambda: {"items": evaluate_all(request, _problem)})


def _problem(error: IllegalStrategy) -> Mapping[str, Any]:
    return problem_of_bad_input(error).to_json("")
