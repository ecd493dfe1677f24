"""The application, made by a factory from its settings."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api import page
from api.asking import Accuracy, Asking
from api.errors import CODES, Problem, problem_of_bad_input, problem_of_validation, problem_response
from api.guard import Guard
from api.jobs import Jobs
from api.keyring import KeyRing
from api.metrics import Metrics
from api.openapi import describe
from api.routes import catalog, checks, evaluations, events, health, plans, questions, runs
from api.runs.keeper import Keeper
from api.runs.store import Runs
from api.schemas import ProblemBody
from api.settings import Settings
from api.store import Database
from api.store.moves import State
from api.store.plans import Plans
from api.store.watch import Watch
from api.work import Work
from cost_models.errors import BadInput
from planner.version import planner_version

RESPONSES: Final[dict[int | str, dict[str, Any]]] = {422: {"model": ProblemBody}}
"""Names the schema of problems; api.openapi says which call answers which."""


def create_app(settings: Settings) -> FastAPI:
    """A server's application; nothing is shared between two of them."""
    app = FastAPI(
        title="parallelism-planner",
        version=planner_version(),
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        separate_input_output_schemas=False,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.database = Database(settings.database, settings.data_dir)
    app.state.keyring = KeyRing(settings, app.state.database)
    app.state.metrics = Metrics()
    app.state.plans = Plans(app.state.database, settings.max_queued)
    app.state.watch = Watch(app.state.database)
    cores = threading.BoundedSemaphore(settings.num_searches)
    app.state.jobs = Jobs(settings, app.state.database, app.state.watch.tell, cores)
    app.state.work = Work(settings)
    app.state.asking = Asking(settings, cores)
    app.state.accuracy = Accuracy(app.state.asking)
    _watch_jobs(app.state.metrics, app.state.jobs)
    app.state.metrics.watch(
        "evaluations_waiting", "Requests for a thread.", lambda: app.state.work.num_waiting
    )
    app.state.metrics.watch("questions_waiting", "Requests for a core.", lambda: app.state.asking.num_waiting)
    known = Runs(app.state.database, settings.max_queued_runs)
    app.state.keeper = Keeper(settings, known, app.state.database.data_dir)
    for module in (plans, events, runs, evaluations, checks, questions, catalog):
        app.include_router(module.router, responses=RESPONSES)
    app.include_router(health.router)
    app.include_router(page.files_router)
    app.include_router(page.views_router, responses=RESPONSES)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(BadInput, _on_bad_input)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    app.add_middleware(Guard, settings=settings, keyring=app.state.keyring, metrics=app.state.metrics)
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        app.openapi_schema = describe(app, app.state.settings)
    return app.openapi_schema


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A server searches from its start; any application gives back its searches and closes its files at its end."""
    jobs: Jobs = app.state.jobs
    if app.state.settings.starts_jobs:
        jobs.start_soon()
    if app.state.settings.allow_runs:
        app.state.keeper.start()
    yield
    await run_in_threadpool(app.state.keeper.stop)
    app.state.watch.close()
    await run_in_threadpool(jobs.stop)
    app.state.database.close()


def _watch_jobs(metrics: Metrics, jobs: Jobs) -> None:
    metrics.watch("searches", "Searches of this server at work.", lambda: jobs.num_tasks)
    for state in (State.QUEUED, State.RUNNING):
        metrics.watch(f"plans_{state}", f"Plans of all servers that are {state}.", partial(jobs.count, state))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    body = error.body if isinstance(error, RequestValidationError) else None
    if found and found[0]["loc"][:1] == ("path",):
        return problem_response(Problem(404, "not_found", "no such resource"), _request_id(request))
    return problem_response(problem_of_validation(found, body), _request_id(request))


async def _on_bad_input(request: Request, error: Exception) -> Response:
    if not isinstance(error, BadInput):
        raise error
    return problem_response(problem_of_bad_input(error), _request_id(request))


async def _on_http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, Problem):
        return problem_response(error, _request_id(request))
    if not isinstance(error, HTTPException):
        raise error
    code = CODES.get(error.status_code, "error")
    problem = Problem(error.status_code, code, str(error.detail), headers=error.headers)
    return problem_response(problem, _request_id(request))


def _request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))
