"""Plans: ask, read, list, rename, cancel, delete."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.answers import PlanBody, PlansBody
from api.deps import CallerDep, DatabaseDep, JobsDep, PlansDep, WatchDep
from api.errors import Fault, Problem
from api.keys import KEYLESS, Caller
from api.schemas import PlanPatch, ProblemBody
from api.settings import Settings
from api.store.changes import PlanRow
from api.store.idempotency import Once
from api.store.moves import State
from api.store.plan_list import DEFAULT_LIMIT, MAX_LIMIT, Filter, find
from api.store.plans import NewPlan, Plans, body_of, etag_of
from api.store.watch import Watch
from api.strict_route import StrictRoute
from planner.plan_file import new_plan_id, resolved_request
from planner.request import PlanRequest
from planner.search_request import check_search
from planner.situation import Situation, resolve

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute)

DEFAULT_WAIT_S: Final = 2.0
MAX_WAIT_S: Final = 30.0
_WAIT: Final = re.compile(
    r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]{1,6}(?:\.[0-9]{1,6})?)\"?\s*(?=$|[,;])", re.IGNORECASE
)
_PROBLEM: Final[dict[str, Any]] = {"model": ProblemBody, "content": {"application/problem+json": {}}}
NOT_FOUND: Final[dict[int | str, dict[str, Any]]] = {404: {**_PROBLEM, "description": "No such plan"}}
CONFLICT: Final[dict[int | str, dict[str, Any]]] = {
    409: {**_PROBLEM, "description": "The plan's state does not allow it"}
}
PlanId = Annotated[str, Path(max_length=100)]
Text = Annotated[str | None, Query(min_length=1, max_length=200)]


@router.post(
    "",
    response_model=PlanBody,
    responses={
        202: {"model": PlanBody, "description": "Accepted; the search goes on"},
        409: {**_PROBLEM, "description": "The idempotency key was used with another body"},
        503: {**_PROBLEM, "description": "The server is starting or stopping"},
    },
)
async def create_plan(
    request: PlanRequest,
    http: Request,
    prefer: Annotated[str | None, Header(max_length=1000)] = None,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Response:
    """Search for the best plan: 200 if it is final within `Prefer: wait=S`, else 202; the search goes on either way.

    An infeasible request succeeds, with `result.status` infeasible.
    """
    state = http.app.state
    settings: Settings = state.settings
    plans: Plans = state.plans
    _check_seconds(request, settings)
    if state.jobs.is_draining:
        raise Problem(503, "not_ready", "the server is stopping; ask again", headers={"Retry-After": "5"})
    situation = await state.work.evaluate(lambda: _situation(request))
    new = _new_plan(request, situation, key_id_of(http))
    once = _once(request, idempotency_key, new.key_id)
    row, is_replayed = await run_in_threadpool(plans.create, new, once)
    if not is_replayed:
        await run_in_threadpool(state.jobs.submit, row.id, row.job_number)
    wait_s = wait_of(prefer)
    if not State(row.state).is_final and wait_s > 0:
        await until_final(state.watch, row.id, wait_s)
        row = await found_plan(plans, row.id)
    headers = {"Location": f"/v1/plans/{row.id}"}
    if is_replayed:
        headers["Idempotency-Replayed"] = "true"
    return plan_response(row, headers, 200 if State(row.state).is_final else 202)


@router.get("", response_model=PlansBody)
async def list_plans(  # noqa: PLR0913, PLR0917 - one parameter a filter
    database: DatabaseDep,
    caller: CallerDep,
    name: Text = None,
    tag: Text = None,
    model: Text = None,
    cluster: Text = None,
    state: Annotated[State | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """Plans that the caller may see and that match every filter, newest first."""
    wanted = Filter(name, tag, model, cluster, state, caller.peers)
    page, next_cursor = await run_in_threadpool(find, database, wanted, limit, cursor)
    items = b", ".join(body_of(row) for row in page)
    after = b"null" if next_cursor is None else f'"{next_cursor}"'.encode("ascii")
    return Response(
        b'{"items": [' + items + b'], "next_cursor": ' + after + b"}", 200, None, "application/json"
    )


@router.get(
    "/{plan_id}", response_model=PlanBody, responses={304: {"description": "Not changed"}, **NOT_FOUND}
)
async def read_plan(
    plan_id: PlanId,
    plans: PlansDep,
    caller: CallerDep,
    if_none_match: Annotated[str | None, Header(max_length=2000)] = None,
) -> Response:
    """A plan, with its progress while it is searched; the same object is a plan file."""
    row = await found_plan(plans, plan_id, caller)
    tags = {tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")}
    if etag_of(row) in tags or "*" in tags:
        return Response(status_code=304, headers={"ETag": etag_of(row)})
    return plan_response(row, {})


@router.patch(
    "/{plan_id}",
    response_model=PlanBody,
    responses={
        **NOT_FOUND,
        412: {**_PROBLEM, "description": "The plan has changed"},
        428: {**_PROBLEM, "description": "If-Match is missing"},
    },
)
async def rename_plan(
    plan_id: PlanId,
    patch: PlanPatch,
    plans: PlansDep,
    watch: WatchDep,
    caller: CallerDep,
    if_match: Annotated[str | None, Header(max_length=200)] = None,
) -> Response:
    """Change name and tags; `If-Match` carries the ETag of what was read (`*` for any)."""
    if if_match is None:
        raise Problem(428, "precondition_required", "send If-Match with the plan's ETag")
    row = await found_plan(plans, plan_id, caller)
    revision = None if if_match.strip() == "*" else row.revision
    if revision is not None and etag_of(row) not in {tag.strip() for tag in if_match.split(",")}:
        raise Problem(412, "precondition_failed", "the plan has changed; read it again for its ETag")
    values = patch.model_dump(include=patch.model_fields_set)
    if "tags" in values:
        values["tags"] = list(patch.tags)
    row = await run_in_threadpool(plans.update, plan_id, revision, values)
    watch.tell()
    return plan_response(row, {})


@router.post(
    "/{plan_id}/cancel",
    response_model=PlanBody,
    status_code=202,
    responses={
        200: {"model": PlanBody, "description": "It was cancelled before"},
        **NOT_FOUND,
        **CONFLICT,
    },
)
async def cancel_plan(
    plan_id: PlanId, plans: PlansDep, jobs: JobsDep, watch: WatchDep, caller: CallerDep
) -> Response:
    """Cancel a queued or running plan; its search process ends within a second."""
    await found_plan(plans, plan_id, caller)
    row, is_new = await run_in_threadpool(plans.cancel, plan_id)
    if is_new:
        await run_in_threadpool(jobs.cancel, row.id, row.job_number)
        watch.tell()
    return plan_response(row, {}, 202 if is_new else 200)


@router.delete("/{plan_id}", status_code=204, responses={**NOT_FOUND, **CONFLICT})
async def delete_plan(plan_id: PlanId, plans: PlansDep, watch: WatchDep, caller: CallerDep) -> Response:
    """Forget a plan that has ended and has no runs."""
    await found_plan(plans, plan_id, caller)
    await run_in_threadpool(plans.delete, plan_id)
    watch.tell()
    return Response(status_code=204)


async def found_plan(plans: Plans, plan_id: str, caller: Caller = KEYLESS) -> PlanRow:
    """A plan by its id, where the caller may see it; raises Problem 404."""
    row = await run_in_threadpool(plans.get, plan_id)
    if row is None or not caller.sees(row.key_id):
        raise Problem(404, "not_found", "no such plan; it may have been forgotten, so plan again")
    return row


async def until_final(watch: Watch, plan_id: str, limit_s: float) -> None:
    """Wait until a plan has ended, at most some seconds, or until the server stops."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + limit_s
    feed = await run_in_threadpool(watch.join, plan_id)
    try:
        while not feed.has_ended and loop.time() < deadline:
            await feed.wait(feed.last, deadline - loop.time())
    finally:
        watch.leave(plan_id, feed)


def wait_of(prefer: str | None) -> float:
    """Seconds to wait by a Prefer header (RFC 7240); what is not understood is as if it were not there."""
    found = _WAIT.search(prefer or "")
    return min(float(found[1]), MAX_WAIT_S) if found else DEFAULT_WAIT_S


def key_id_of(http: Request) -> str:
    """Id of the API key that asks; empty where the server has none."""
    return str(http.scope.get("state", {}).get("key_id", ""))


def plan_response(row: PlanRow, headers: Mapping[str, str], status: int = 200) -> Response:
    """A plan as an answer."""
    sent = {"ETag": etag_of(row), "Cache-Control": "private, no-cache", **headers}
    return Response(body_of(row), status, sent, "application/json")


def _check_seconds(request: PlanRequest, settings: Settings) -> None:
    if request.search.max_seconds > settings.max_search_s:
        detail = f"max_seconds is {request.search.max_seconds:g}; give at most {settings.max_search_s:g}"
        pointer = "/search/max_seconds"
        raise Problem(422, "invalid_request", detail, [Fault(pointer, "invalid_request", detail)])


def _situation(request: PlanRequest) -> Situation:
    """Model and cluster spelt out; raises BadInput before anything is queued."""
    check_search(request.search)
    return resolve(request.model, request.cluster, request.job, reader="plain")


def _new_plan(request: PlanRequest, situation: Situation, key_id: str) -> NewPlan:
    resolved = resolved_request(situation, request.search)
    return NewPlan(
        id=new_plan_id(),
        name=request.name,
        tags=tuple(request.tags),
        model=request.model.name if request.model.kind == "catalog" else situation.model.name,
        cluster=request.cluster.name if request.cluster.kind == "preset" else situation.cluster.name,
        request=resolved.model_dump_json(),
        key_id=key_id,
    )


def _once(request: PlanRequest, key: str | None, owner: str) -> Once | None:
    if key is None:
        return None
    return Once(owner, f"plans {key}", hashlib.sha256(request.model_dump_json().encode()).hexdigest())
