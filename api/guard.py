"""What surrounds every request: its id, who may ask what, and that exceptions reach a client as problems only.

Without keys the server listens on loopback only, so a browser page is the one stranger that can reach it:
Host and Origin must name this server (against DNS rebinding and cross-site requests). With keys, every call
but the health checks and the page's own files carries a bearer key whose scope includes the call's.
"""

import logging
import re
import time
import uuid
from collections import Counter
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import Problem, problem_response
from api.keyring import KeyRing
from api.keys import KEYLESS, MAX_KEY_CHARACTERS, Caller
from api.keys import Scope as KeyScope
from api.logs import bound
from api.metrics import Metrics
from api.settings import Settings
from api.store.database import DATABASE_AWAY, no_database

REQUEST_ID: Final = "x-request-id"
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
PAGE_PREFIX: Final = "/page/"
LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers of a proxy in front."""
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
RETRY_AFTER_S: Final = 1
HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
"""Where the answer does not say otherwise."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]/]+)(?::[0-9]{1,5})?")
_RUNS: Final = re.compile(r"/v1/(?:runs(?:/.*)?|plans/[^/]+/runs)/?")

log = logging.getLogger("api")


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, keyring: KeyRing, metrics: Metrics) -> None:
        self.app = app
        self.settings = settings
        self.keyring = keyring
        self.metrics = metrics
        self._working: Counter[tuple[str, bool]] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a problem."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = request_id_of(Headers(scope=scope))
        scope.setdefault("state", {}).update(request_id=request_id, caller=KEYLESS, key_id="")
        answer = _Answer(send, request_id)
        began_s = time.perf_counter()
        with bound(request_id=request_id), self.metrics.under_way():
            try:
                await self._pass_on(scope, receive, answer)
            finally:
                self._note(scope, answer, time.perf_counter() - began_s)

    async def _pass_on(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        request_id = answer.request_id
        try:
            _check_address(scope)
            caller = await self._admit(scope, Headers(scope=scope))
            scope["state"].update(caller=caller, key_id=caller.key_id)
            await self._within_quota(scope, receive, answer, caller)
        except Problem as problem:
            await problem_response(problem, request_id)(scope, receive, answer.send)
        except DATABASE_AWAY as error:
            log.warning("no database: %s", str(error)[:200])
            if answer.status:
                raise
            await problem_response(no_database(), request_id)(scope, receive, answer.send)
        except Exception:
            log.exception("request failed")
            if answer.status:
                raise
            failed = Problem(500, "internal_error", f"internal error; report it with request id {request_id}")
            await problem_response(failed, request_id)(scope, receive, answer.send)

    async def _within_quota(self, scope: Scope, receive: Receive, answer: "_Answer", caller: Caller) -> None:
        """Pass a request on, counted against its key: reads, streams of events among them, apart from what works."""
        if not caller.key_id:
            await self.app(scope, receive, answer.send)
            return
        reads = scope["method"] in READS
        limit = self.settings.max_reads_per_key if reads else self.settings.max_per_key
        place = (caller.key_id, reads)
        if self._working[place] >= limit:
            kind = "reads" if reads else "requests"
            detail = f"{limit} {kind} of this key are under way; ask again in {RETRY_AFTER_S} s"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(RETRY_AFTER_S)})
        self._working[place] += 1
        try:
            await self.app(scope, receive, answer.send)
        finally:
            self._working[place] -= 1
            if not self._working[place]:
                del self._working[place]

    async def _admit(self, scope: Scope, headers: Headers) -> Caller:
        """Who asks; raises Problem where this caller may not ask."""
        method, path = scope["method"], scope["path"]
        if path in HEALTH_PATHS:
            return KEYLESS
        key = _bearer(headers)
        known = self.keyring.known(key) if key else None
        if not known and not await _needs_key(self.keyring):
            self._check_host(method, headers)
            return KEYLESS
        if method in READS and is_page(path):
            return KEYLESS
        caller = known or (await run_in_threadpool(self.keyring.caller, key) if key else None)
        if caller is None:
            detail = "no valid key; send Authorization: Bearer KEY"
            raise Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})
        needed = scope_of(method, path)
        if not caller.may(needed):
            detail = (
                f"the key's scope is {caller.scope}, which does not include {needed}; ask with another key"
            )
            raise Problem(403, "scope_not_allowed", detail)
        return caller

    def _check_host(self, method: str, headers: Headers) -> None:
        host = headers.get("host", "")
        if any(name in headers for name in FORWARDED):
            # Behind a proxy, loopback is everybody: what the proxy lets in, not who is on this machine.
            detail = "the request comes through a proxy; start the server with --key-file, or make a key"
            raise Problem(403, "key_required", detail)
        match = _HOST.fullmatch(host)
        name = match["name"].lower() if match else ""
        if name not in LOCAL_NAMES and name != self.settings.host:
            raise Problem(403, "host_not_allowed", "the Host header names another server; use localhost")
        origin = headers.get("origin")
        is_foreign = origin is not None and origin not in (f"http://{host}", f"https://{host}")
        # Browsers say where a request comes from even where they leave Origin out.
        is_foreign |= method not in READS and headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign:
            raise Problem(
                403, "origin_not_allowed", "the Origin header names another site; ask from this server"
            )

    def _note(self, scope: Scope, answer: "_Answer", seconds: float) -> None:
        """One line of the log and one count of the metrics."""
        route = getattr(scope.get("route"), "path", "none")
        self.metrics.note(scope["method"], route, answer.status, seconds)
        about = {"method": scope["method"][:16], "path": scope["path"][:200], "route": route}
        about |= {"status": answer.status, "seconds": round(seconds, 6), "key_id": scope["state"]["key_id"]}
        level = logging.DEBUG if scope["path"] in HEALTH_PATHS else logging.INFO
        log.log(level, "request", extra=about)


class _Answer:
    """The way back to a client: headers that every answer has, and its status once it has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self.request_id = request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send one message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            added = MutableHeaders(scope=message)
            added[REQUEST_ID] = self.request_id
            for name, value in HEADERS.items():
                added.setdefault(name, value)
        await self._send(message)


def _check_address(scope: Scope) -> None:
    """Raise Problem for a NUL in path or query, which no database takes as text."""
    if "\0" in scope["path"]:
        raise Problem(404, "not_found", "no such resource")
    if b"%00" in scope["query_string"]:
        raise Problem(422, "invalid_request", "the query holds the character NUL (%00); leave it out")


def scope_of(method: str, path: str) -> KeyScope:
    """The scope that a call needs: reading, computing and keeping plans, or launching runs."""
    if method in READS:
        return "read"
    return "run" if _RUNS.fullmatch(path) else "plan"


async def is_still_admitted(keyring: KeyRing, scope: Scope) -> bool:
    """Whether a request that was admitted would be now: its key holds, or none is needed yet."""
    key = _bearer(Headers(scope=scope))
    try:
        if scope["state"]["caller"] is KEYLESS:
            return not await _needs_key(keyring)
        return keyring.known(key) is not None or await run_in_threadpool(keyring.caller, key) is not None
    except (Problem, *DATABASE_AWAY):
        return True  # not known; nothing new comes without the database either


async def _needs_key(keyring: KeyRing) -> bool:
    """Whether requests carry a key: from memory, or from the database beside the loop."""
    known = keyring.needs_key_known()
    return await run_in_threadpool(keyring.needs_key) if known is None else known


def is_page(path: str) -> bool:
    """Whether a path is the web page or one of its files, which say nothing and ask with a key of the user's."""
    return path == "/" or path.startswith(PAGE_PREFIX)


def request_id_of(headers: Headers) -> str:
    """The caller's X-Request-Id where it is short and plain, else a fresh one."""
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _bearer(headers: Headers) -> str:
    """The key of a request; empty where it carries none, or none that could be one."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    key = key.strip()
    return key if scheme.lower() == "bearer" and len(key) <= MAX_KEY_CHARACTERS else ""
