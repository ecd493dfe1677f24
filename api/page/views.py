"""What the page draws of one strategy."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.deps import WorkDep
from api.questions.sources import strategy_of
from api.schemas import StrategyInput
from api.strict_route import StrictRoute
from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest
from planner.answers import finite
from planner.request import ClusterInput, ModelInput

router = APIRouter(prefix="/v1/views", tags=["views"], route_class=StrictRoute)


class ViewRequest(Frozen):
    """One strategy for one model, cluster and job."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    strategy: StrategyInput


@router.post("", response_model=dict[str, Any])
async def view_strategy(request: ViewRequest, work: WorkDep) -> JSONResponse:
    """Prediction, timeline, device grid and facts of one strategy, as the page and the report draw them."""
    return JSONResponse(finite(await work.evaluate(lambda: _view(request))))


def _view(request: ViewRequest) -> dict[str, Any]:
    from planner.report import view_of
    from planner.situation import resolve

    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    return view_of(situation, strategy_of(request.strategy))
