"""Events of a plan as server-sent events: what was, then what comes, until the plan has ended."""

from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.deps import CallerDep, PlansDep, WatchDep
from api.errors import Problem
from api.routes.plans import NOT_FOUND, found_plan
from api.store.changes import Event
from api.store.watch import Watch

router = APIRouter(prefix="/v1/plans", tags=["plans"])

KEEP_ALIVE_S: Final = 15.0
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@router.get(
    "/{plan_id}/events",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "The events"},
        204: {"description": "The plan has ended and everything was sent before"},
        **NOT_FOUND,
    },
)
async def read_events(
    plan_id: Annotated[str, Path(max_length=100)],
    plans: PlansDep,
    watch: WatchDep,
    caller: CallerDep,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """Kinds `state`, `progress`, `incumbent`, `end`; ids rise; `Last-Event-ID` continues after an event."""
    after = _number(last_event_id)
    row = await found_plan(plans, plan_id, caller)
    if row.ended_at is not None and after >= row.last_event:
        return Response(status_code=204)
    return StreamingResponse(stream(watch, plan_id, after), 200, _HEADERS, "text/event-stream")


async def stream(watch: Watch, plan_id: str, after: int) -> AsyncIterator[bytes]:
    """Events later than a number, as bytes; a comment every 15 s where nothing happens."""
    feed = await run_in_threadpool(watch.join, plan_id)
    try:
        while True:
            fresh = feed.after(after)
            if fresh:
                after = fresh[-1].number
                yield b"".join(encoded(event) for event in fresh)
            elif feed.has_ended:
                return
            elif not await feed.wait(after, KEEP_ALIVE_S):
                yield b": keep-alive\n\n"
    finally:
        watch.leave(plan_id, feed)


def encoded(event: Event) -> bytes:
    """One event in the format of server-sent events."""
    return f"id: {event.number}\nevent: {event.kind}\ndata: {event.data}\n\n".encode("ascii")


def _number(last_event_id: str | None) -> int:
    text = (last_event_id or "0").strip()
    if not text.isascii() or not text.isdigit():
        raise Problem(422, "invalid_request", "Last-Event-ID is no number; send the id of an event, or none")
    return int(text)
