"""Routes whose bodies are read with a size limit, as JSON only, and parsed strictly."""

import asyncio
from collections.abc import Callable, Coroutine
from email.message import Message
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from api.errors import Fault, Problem
from api.settings import Settings
from api.strict_json import parse_json

BODY_S: Final = 60.0
"""How long a body may take to arrive."""
LARGE_BYTES: Final = 64 * 1024
"""Bodies from here on are parsed in a thread, so that nobody else waits for them."""


class StrictRequest(Request):
    """A request that refuses bodies which are too large, of another type, or not strict JSON."""

    async def body(self) -> bytes:
        """The body, at most `Settings.max_body_bytes`; raises Problem 413, 415 or 400."""
        if not hasattr(self, "_body"):
            settings: Settings = self.app.state.settings
            _check_content_type(self.headers.get("content-type"))
            try:
                async with asyncio.timeout(BODY_S):
                    self._body = await self._read(settings.max_body_bytes)
            except TimeoutError:
                raise _too_slow() from None
            if not self._body.strip():
                detail = "the body is empty (byte 0); send one JSON object"
                raise Problem(400, "malformed", detail, [Fault("", "malformed", detail)])
        return self._body

    async def json(self) -> Any:
        """The value of the body."""
        body = await self.body()
        if len(body) < LARGE_BYTES:
            return parse_json(body)
        return await run_in_threadpool(parse_json, body)

    async def _read(self, limit: int) -> bytes:
        """The body in pieces, stopping as soon as it is too large."""
        stated = self.headers.get("content-length", "")
        if stated.isdigit() and (len(stated) > len(str(limit)) or int(stated) > limit):
            raise _too_large(limit)
        pieces: list[bytes] = []
        size = 0
        async for piece in self.stream():
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            pieces.append(piece)
        return b"".join(pieces)


class StrictRoute(APIRoute):
    """A route that reads its request as StrictRequest."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The usual handler, given a strict request."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _too_slow() -> Problem:
    detail = f"the body did not arrive within {BODY_S:.0f} s; send it at once"
    return Problem(408, "request_timeout", detail, headers={"Connection": "close"})


def _too_large(limit: int) -> Problem:
    return Problem(
        413, "body_too_large", f"the body exceeds {limit:,} bytes; send less", headers={"Connection": "close"}
    )


def _check_content_type(stated: str | None) -> None:
    """JSON in UTF-8 only; a browser cannot send that type across origins without asking first."""
    message = Message()
    message["content-type"] = stated or "none"
    charset = message.get_content_charset() or "utf-8"
    if not stated or message.get_content_type() != "application/json" or charset not in ("utf-8", "us-ascii"):
        raise Problem(
            415, "unsupported_media_type", "the body must be application/json in UTF-8; set Content-Type"
        )
