"""Runs: launch a stored plan, watch it, end it. Off until the server is started with --allow-runs."""

import uuid
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.deps import CallerDep, KeeperDep, PlansDep, SettingsDep
from api.errors import Problem
from api.keys import Caller
from api.routes.plans import found_plan, key_id_of
from api.runs.availability import check_launcher
from api.runs.folder import RunFolder
from api.runs.keeper import Keeper
from api.runs.requests import LaunchRequest, check_request
from api.runs.schemas import LogBody, MetricsBody, RunBody, RunsBody
from api.runs.states import RunState
from api.runs.store import NewRun, RunFilter, RunRow
from api.runs.views import artifact_of, body_of, log_of, metrics_of
from api.schemas import ProblemBody
from api.store.changes import dump
from api.store.moves import State
from api.store.plan_list import DEFAULT_LIMIT, MAX_LIMIT
from api.store.plans import document_of
from api.strict_route import StrictRoute

router = APIRouter(prefix="/v1", tags=["runs"], route_class=StrictRoute)

MAX_RANK: Final = 1_000_000
MAX_AFTER: Final = 2**53
_PROBLEM: Final[dict[str, Any]] = {"model": ProblemBody, "content": {"application/problem+json": {}}}
NOT_FOUND: Final[dict[int | str, dict[str, Any]]] = {404: {**_PROBLEM, "description": "No such run"}}
CONFLICT: Final[dict[int | str, dict[str, Any]]] = {
    409: {**_PROBLEM, "description": "Runs are off, the launcher is not here, or the state does not allow it"}
}
RunId = Annotated[str, Path(max_length=100)]
After = Annotated[int, Query(ge=0, le=MAX_AFTER)]


@router.post(
    "/plans/{plan_id}/runs",
    response_model=RunBody,
    status_code=202,
    responses={404: {**_PROBLEM, "description": "No such plan"}, **CONFLICT},
)
async def create_run(  # noqa: PLR0913, PLR0917 - one parameter a dependency
    plan_id: Annotated[str, Path(max_length=100)],
    request: LaunchRequest,
    http: Request,
    settings: SettingsDep,
    plans: PlansDep,
    keeper: KeeperDep,
    caller: CallerDep,
) -> Response:
    """Launch the best strategy of a plan that has succeeded; the run goes on whatever becomes of this server."""
    if not settings.allow_runs:
        raise Problem(409, "runs_disabled", "runs are off; start the server with --allow-runs")
    row = await found_plan(plans, plan_id)
    if not caller.sees(row.key_id):
        raise Problem(404, "not_found", "no such plan")
    if row.state != State.SUCCEEDED:
        raise Problem(
            409, "illegal_transition", f"the plan is {row.state}; only one that has succeeded is run"
        )
    plan = document_of(row)
    if plan["result"]["best"] is None:
        status = plan["result"]["status"]
        raise Problem(
            409, "illegal_transition", f"the plan found nothing to run ({status}); plan with more room"
        )
    await run_in_threadpool(check_request, request, settings)
    await run_in_threadpool(check_launcher, request.launcher, plan, settings)
    made = await run_in_threadpool(keeper.runs.create, _new_run(plan, request, key_id_of(http)))
    keeper.wake()
    return await _answer(keeper, made, 202, {"Location": f"/v1/runs/{made.id}"})


@router.get("/runs", response_model=RunsBody)
async def list_runs(
    keeper: KeeperDep,
    caller: CallerDep,
    plan_id: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    state: Annotated[RunState | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
) -> Response:
    """Runs that match every filter, newest first."""
    wanted = RunFilter(plan_id, state, None if caller.peers is None else tuple(caller.peers))
    page, next_cursor = await run_in_threadpool(keeper.runs.find, wanted, limit, cursor)
    bodies = await run_in_threadpool(lambda: [body_of(row, keeper.folder_of(row.id)) for row in page])
    return _json({"items": bodies, "next_cursor": next_cursor})


@router.get("/runs/{run_id}", response_model=RunBody, responses=NOT_FOUND)
async def read_run(run_id: RunId, keeper: KeeperDep, caller: CallerDep) -> Response:
    """A run with what was predicted beside what is measured."""
    return await _answer(keeper, await _found(keeper, run_id, caller), 200, {})


@router.get("/runs/{run_id}/logs", response_model=LogBody, responses=NOT_FOUND)
async def read_log(
    run_id: RunId,
    keeper: KeeperDep,
    caller: CallerDep,
    rank: Annotated[int | None, Query(ge=0, le=MAX_RANK)] = None,
    after: After = 0,
) -> Response:
    """Lines that a rank wrote, from a byte on; without `rank` the run's own."""
    folder = await _folder(keeper, run_id, caller)
    part = await run_in_threadpool(log_of, folder, rank, after)
    return _json({"rank": rank, "lines": part.lines, "next": part.next})


@router.get("/runs/{run_id}/metrics", response_model=MetricsBody, responses=NOT_FOUND)
async def read_metrics(run_id: RunId, keeper: KeeperDep, caller: CallerDep, after: After = 0) -> Response:
    """Steps later than a number: loss, seconds, tokens/s, memory of every rank."""
    folder = await _folder(keeper, run_id, caller)
    steps = await run_in_threadpool(metrics_of, folder, after)
    return _json({"items": steps, "next": steps[-1]["step"] if steps else after})


@router.get(
    "/runs/{run_id}/artifacts/{name}",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        **NOT_FOUND,
    },
)
async def read_artifact(
    run_id: RunId, name: Annotated[str, Path(max_length=200)], keeper: KeeperDep, caller: CallerDep
) -> Response:
    """One of the run's `artifacts`; `measured.csv` is what `planner calibrate` and `planner validate` take."""
    folder = await _folder(keeper, run_id, caller)
    content = await run_in_threadpool(artifact_of, folder, run_id, name)
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "private, no-cache"}
    return Response(content, 200, headers, "application/octet-stream")


@router.post(
    "/runs/{run_id}/cancel",
    response_model=RunBody,
    status_code=202,
    responses={200: {"model": RunBody, "description": "It was cancelled before"}, **NOT_FOUND, **CONFLICT},
)
async def cancel_run(run_id: RunId, keeper: KeeperDep, caller: CallerDep) -> Response:
    """End a run; it is `cancelled` once none of its processes is left, at most half a minute later."""
    await _found(keeper, run_id, caller)
    row, is_live = await run_in_threadpool(keeper.runs.cancel, run_id)
    keeper.wake()
    return await _answer(keeper, row, 202 if is_live else 200, {})


async def _found(keeper: Keeper, run_id: str, caller: Caller) -> RunRow:
    row = await run_in_threadpool(keeper.runs.get, run_id)
    if row is None or not caller.sees(row.key_id):
        raise Problem(404, "not_found", "no such run")
    return row


async def _folder(keeper: Keeper, run_id: str, caller: Caller) -> RunFolder:
    """The folder of a run; raises Problem 404 where its files lie on another host."""
    row = await _found(keeper, run_id, caller)
    folder = keeper.folder_of(row.id)
    if row.host is not None and row.host != keeper.host and not folder.path.is_dir():
        host = str(row.host).partition("/")[0]
        raise Problem(404, "not_found", f"the run's files lie on host {host}; ask the server there")
    return folder


async def _answer(keeper: Keeper, row: RunRow, status: int, headers: dict[str, str]) -> Response:
    body = await run_in_threadpool(body_of, row, keeper.folder_of(row.id))
    return _json(body, status, headers)


def _json(body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    sent = {"Cache-Control": "private, no-cache", **(headers or {})}
    return Response(dump(body), status, sent, "application/json")


def _new_run(plan: dict[str, Any], request: LaunchRequest, key_id: str) -> NewRun:
    best = plan["result"]["best"]
    kept = ("schema_version", "id", "request", "result", "made_with")
    predicted = {"step_s": best["step_s"], "peak_bytes": best["memory"]["peak_allocated_bytes"]}
    details = {"plan": {key: plan[key] for key in kept}, "predicted": predicted}
    run_id = f"run_{uuid.uuid4().hex}"
    return NewRun(run_id, plan["id"], request.launcher, request.model_dump_json(), key_id, details)
