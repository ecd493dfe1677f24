"""Questions: explanations, comparisons, simulations, exports, what a model is made of, how many devices it takes."""

from fastapi import APIRouter, Request, Response

from api.answers import (
    ComparisonBody,
    ContrastBody,
    ExplanationBody,
    ExportBody,
    InspectionBody,
    SimulationBody,
    SizesBody,
    UnsolvedBody,
)
from api.deps import AskingDep, CallerDep, PlansDep, WorkDep
from api.questions.comparisons import ComparisonRequest, compare
from api.questions.explanations import ExplanationRequest
from api.questions.exports import ExportRequest, export
from api.questions.inspections import InspectionRequest, inspect
from api.questions.simulations import SimulationRequest, simulate
from api.questions.sizes import SizesRequest
from api.routes.answer import answer_json
from api.routes.stored import stored_document
from api.strict_route import StrictRoute

router = APIRouter(prefix="/v1", tags=["questions"], route_class=StrictRoute)


@router.post("/explanations", response_model=ExplanationBody | ContrastBody | UnsolvedBody)
async def explain_plan(
    request: ExplanationRequest,
    http: Request,
    plans: PlansDep,
    caller: CallerDep,
    asking: AskingDep,
    work: WorkDep,
) -> Response:
    """The object of `planner explain --json`; takes up to `max_seconds` and some."""
    stored = await stored_document(plans, caller, request.plan_id)
    question = {"request": request.model_dump(mode="json"), "stored": stored}
    found = await asking.ask("explanation", question, float(request.max_seconds), http.is_disconnected)
    return await answer_json(work, lambda: found)


@router.post("/sizes", response_model=SizesBody)
async def size_cluster(request: SizesRequest, http: Request, asking: AskingDep, work: WorkDep) -> Response:
    """The object of `planner size --json`; where `max_seconds` did not do, `complete` is false."""
    question = {"request": request.model_dump(mode="json"), "stored": None}
    found = await asking.ask("sizes", question, float(request.max_seconds), http.is_disconnected)
    return await answer_json(work, lambda: found)


@router.post("/comparisons", response_model=ComparisonBody)
async def compare_plans(
    request: ComparisonRequest, plans: PlansDep, caller: CallerDep, work: WorkDep
) -> Response:
    """The object of `planner compare --json`."""
    found = {key: await stored_document(plans, caller, key) for key in request.plan_ids if key is not None}
    stored = {key: document for key, document in found.items() if document is not None}
    return await answer_json(work, lambda: compare(request, stored))


@router.post("/simulations", response_model=SimulationBody)
async def simulate_plan(
    request: SimulationRequest, plans: PlansDep, caller: CallerDep, work: WorkDep
) -> Response:
    """The object of `planner simulate --json`, and columns of its operations as `timeline`."""
    stored = await stored_document(plans, caller, request.plan_id)
    return await answer_json(work, lambda: simulate(request, stored))


@router.post("/exports", response_model=ExportBody)
async def export_plan(request: ExportRequest, plans: PlansDep, caller: CallerDep, work: WorkDep) -> Response:
    """Settings of a framework: files with relative paths, and what they cannot say."""
    stored = await stored_document(plans, caller, request.plan_id)
    return await answer_json(work, lambda: export(request, stored))


@router.post("/inspections", response_model=InspectionBody)
async def inspect_model(request: InspectionRequest, work: WorkDep) -> Response:
    """The object of `planner inspect --json`."""
    return await answer_json(work, lambda: inspect(request))
