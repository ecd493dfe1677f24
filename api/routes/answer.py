"""Answers that are made and written in a thread, so that a large one holds up nobody else."""

import hashlib
import json
from collections.abc import Callable

from fastapi import Request, Response

from api.work import Work
from planner.answers import finite


async def answer_json(work: Work, make: Callable[[], object]) -> Response:
    """The JSON answer of a function, which may raise BadInput; numbers that are not finite are null."""
    return Response(await work.evaluate(lambda: encoded(make())), 200, None, "application/json")


def encoded(value: object) -> bytes:
    """A value as ASCII JSON."""
    return json.dumps(finite(value), allow_nan=False).encode("ascii")


def tagged(request: Request, body: bytes) -> Response:
    """An answer with the entity tag of its bytes; 304 where the caller has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    if tag in known or "*" in known:
        return Response(None, 304, headers)
    return Response(body, 200, headers, "application/json")
