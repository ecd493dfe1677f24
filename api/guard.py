"""What surrounds every request: its id, who may ask, and that exceptions reach a client as problems only.

Without keys the server listens on loopback only, so a browser page is the one stranger that can reach it:
Host and Origin must name this server (against DNS rebinding and cross-site requests). With keys, every call
but the health checks carries a bearer key.
"""

import logging
import re
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import Problem, problem_response
from api.keys import is_known
from api.settings import Settings

REQUEST_ID: Final = "x-request-id"
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]/]+)(?::[0-9]{1,5})?")

log = logging.getLogger("api")


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a problem."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                added = MutableHeaders(scope=message)
                added[REQUEST_ID] = request_id
                added["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            self._admit(scope["path"], headers)
            await self.app(scope, receive, send_with_id)
        except Problem as problem:
            await problem_response(problem, request_id)(scope, receive, send_with_id)
        except Exception:
            log.exception("request %s failed", request_id)
            if started:
                raise
            failed = Problem(500, "internal_error", f"internal error; report it with request id {request_id}")
            await problem_response(failed, request_id)(scope, receive, send_with_id)

    def _admit(self, path: str, headers: Headers) -> None:
        """Raise Problem where this caller may not ask."""
        if path in OPEN_PATHS:
            return
        if self.settings.needs_key:
            self._check_key(headers)
        else:
            self._check_host(headers)

    def _check_key(self, headers: Headers) -> None:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not is_known(key.strip(), self.settings.key_sha256):
            detail = "no valid key; send Authorization: Bearer KEY"
            raise Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        name = match["name"].lower() if match else ""
        if name not in LOCAL_NAMES and name != self.settings.host:
            raise Problem(403, "host_not_allowed", "the Host header names another server; use localhost")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            raise Problem(
                403, "origin_not_allowed", "the Origin header names another site; ask from this server"
            )


def request_id_of(headers: Headers) -> str:
    """The caller's X-Request-Id where it is short and plain, else a fresh one."""
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
