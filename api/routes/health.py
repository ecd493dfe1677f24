"""Is the process alive, and does it take requests?"""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from api.answers import HealthBody
from api.deps import JobsDep
from api.errors import Problem

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=HealthBody)
async def healthz() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", response_model=HealthBody)
async def readyz(request: Request, jobs: JobsDep) -> dict[str, str]:
    """The server takes requests: 503 while it migrates its database, without one, and while it stops."""
    if jobs.is_draining:
        raise Problem(503, "not_ready", "the server is stopping", headers={"Retry-After": "5"})
    if request.app.state.settings.starts_jobs and not jobs.is_running:
        reason = jobs.refusal or "the server is starting: its database is migrated or cannot be reached"
        raise Problem(503, "not_ready", reason, headers={"Retry-After": "5"})
    return {"status": "ready"}


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Counts for Prometheus; who may read plans may read them."""
    text = await run_in_threadpool(request.app.state.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
