"""What the page draws of one strategy."""

import json
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.deps import WorkDep
from api.questions.simulations import bounded
from api.questions.sources import strategy_of
from api.schemas import StrategyInput
from api.strict_route import StrictRoute
from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest
from planner.request import ClusterInput, ModelInput

router = APIRouter(prefix="/v1/views", tags=["views"], route_class=StrictRoute)


class ViewRequest(Frozen):
    """One strategy for one model, cluster and job."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    strategy: StrategyInput


@router.post("", response_model=dict[str, Any])
async def view_strategy(request: ViewRequest, work: WorkDep) -> Response:
    """Prediction, timeline, device grid and facts of one strategy, as the page and the report draw them."""
    text = await work.evaluate(lambda: json.dumps(_view(request), allow_nan=False, separators=(",", ":")))
    return Response(text, media_type="application/json")


def _view(request: ViewRequest) -> dict[str, Any]:
    from planner.report import view_of
    from planner.situation import resolve

    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    return view_of(situation, bounded(situation, strategy_of(request.strategy)))
