"""Events of a plan as server-sent events: what was, then what comes, until the plan has ended."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.deps import CallerDep, PlansDep, WatchDep
from api.errors import Problem
from api.guard import is_still_admitted
from api.routes.plans import NOT_FOUND, found_plan
from api.store.changes import Event
from api.store.watch import Watch

router = APIRouter(prefix="/v1/plans", tags=["plans"])

KEEP_ALIVE_S: Final = 15.0
LOOK_S: Final = 5.0
"""How often a stream asks whether its key still holds."""
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
    http: Request,
    plans: PlansDep,
    watch: WatchDep,
    caller: CallerDep,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """Kinds `state`, `progress`, `incumbent`, `end`; ids rise; `Last-Event-ID` continues after an event."""
    after = _number(last_event_id)
    row = await found_plan(plans, plan_id, caller)
    if row.ended_at is not None and after == row.last_event:
        return Response(status_code=204)
    if after > row.last_event:
        after = 0  # of another life of this plan, before a backup was restored: all of it is new

    async def is_allowed() -> bool:
        return await is_still_admitted(http.app.state.keyring, http.scope)

    return StreamingResponse(stream(watch, plan_id, after, is_allowed), 200, _HEADERS, "text/event-stream")


async def stream(
    watch: Watch, plan_id: str, after: int, is_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[bytes]:
    """Events later than a number, as bytes; a comment every 15 s where nothing happens.

    It ends, too, where its reader is not allowed any more: who asks again is told so.
    """
    feed = await run_in_threadpool(watch.join, plan_id)
    now = asyncio.get_running_loop().time
    said_s = now()
    looked_s = said_s - random.uniform(0.0, LOOK_S)  # streams that began together do not all ask at once
    try:
        while True:
            if now() - looked_s >= LOOK_S:
                if not await is_allowed():
                    return
                looked_s = now()
            fresh = feed.after(after)
            if fresh:
                after, said_s = fresh[-1].number, now()
                yield b"".join(encoded(event) for event in fresh)
            elif feed.has_ended:
                return
            elif not await feed.wait(after, min(LOOK_S, KEEP_ALIVE_S)) and now() - said_s >= KEEP_ALIVE_S:
                said_s = now()
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
