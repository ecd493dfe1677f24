"""Plans: search, and read again."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response

from api.deps import SettingsDep, StoreDep, WorkDep
from api.errors import Fault, Problem
from api.schemas import PlanBody
from api.store import StoredPlan
from api.strict_route import StrictRoute
from api.work import while_connected
from planner.plan_file import now_text, resolved_request
from planner.request import PlanRequest
from planner.search_request import check_search
from planner.situation import resolve

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)


@router.post("", response_model=PlanBody)
async def create_plan(
    request: PlanRequest, http: Request, settings: SettingsDep, store: StoreDep, work: WorkDep
) -> Response:
    """Search for the best plan; an infeasible request succeeds, with `result.status` infeasible."""
    if request.search.max_seconds > settings.max_search_s:
        detail = f"max_seconds is {request.search.max_seconds:g}; give at most {settings.max_search_s:g}"
        pointer = "/search/max_seconds"
        raise Problem(422, "invalid_request", detail, [Fault(pointer, "invalid_request", detail)])
    created_at = now_text()
    resolved = await work.evaluate(lambda: _resolved(request))
    started_at = now_text()
    document = await while_connected(http, work.search(resolved))
    plan = StoredPlan.of(_envelope(request, document, created_at, started_at))
    store.put(plan)
    return _plan_response(plan, {"Location": f"/v1/plans/{plan.envelope['id']}"})


@router.get("/{plan_id}", response_model=PlanBody, responses={304: {"description": "Not changed"}})
async def read_plan(
    plan_id: Annotated[str, Path(max_length=100)],
    store: StoreDep,
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
) -> Response:
    """A plan of this server; plans are kept in memory, the least recently used are forgotten first."""
    plan = stored_plan(store, plan_id)
    tags = {tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")}
    if plan.etag in tags or "*" in tags:
        return Response(status_code=304, headers={"ETag": plan.etag})
    return _plan_response(plan, {})


def stored_plan(store: StoreDep, plan_id: str) -> StoredPlan:
    """A plan by its id; raises Problem 404."""
    plan = store.get(plan_id)
    if plan is None:
        raise Problem(404, "not_found", "no such plan; it may have been forgotten, so plan again")
    return plan


def _resolved(request: PlanRequest) -> PlanRequest:
    """The request with model and cluster spelt out; raises BadInput before a process is started for it."""
    check_search(request.search)
    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    return resolved_request(situation, request.search)


def _plan_response(plan: StoredPlan, headers: Mapping[str, str]) -> Response:
    sent = {"ETag": plan.etag, "Cache-Control": "private, no-cache", **headers}
    return Response(plan.body, 200, sent, "application/json")


def _envelope(
    request: PlanRequest, document: Mapping[str, Any], created_at: str, started_at: str
) -> dict[str, Any]:
    """The Plan body of the contract around a plan document."""
    certificate, best = document["result"]["certificate"], document["result"]["best"]
    total = certificate["meshes_total"]
    progress = {
        "lower_bound_s": certificate["lower_bound_s"],
        "best_step_s": best["step_s"] if best else None,
        "gap": certificate["gap"],
        "meshes_done": total - certificate["meshes_open"],
        "meshes_total": total,
    }
    return {
        "id": document["id"],
        "schema_version": document["schema_version"],
        "state": "succeeded",
        "name": request.name,
        "tags": list(request.tags),
        "request": document["request"],
        "result": document["result"],
        "problem": None,
        "progress": progress,
        "attempt": 1,
        "created_at": created_at,
        "started_at": started_at,
        "ended_at": now_text(),
        "made_with": document["made_with"],
        "links": {"self": f"/v1/plans/{document['id']}"},
    }
