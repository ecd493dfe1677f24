"""The service's client: its calls with their retries, plans with their events; needs httpx2 and nothing of the server.

What can be sent twice without harm is sent again where the network or the server was not up to it: calls that only
read or compute, and new plans, which carry a key of their own for it. Everything else is sent once.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import sleep
from types import TracebackType
from typing import Any, Final, Literal, Self

import httpx2

from api.keys import SCOPES
from cost_models.errors import BadInput, PlannerError

TIMEOUT_S: Final = 60.0
EVENTS_TIMEOUT_S: Final = 45.0
"""The server says something every 15 s."""
RETRIES: Final = 4
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
AGAIN: Final = frozenset({429, 502, 503, 504})
FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})

Json = dict[str, Any]
OnEvent = Callable[[str, Mapping[str, Any]], None]
CatalogKind = Literal["devices", "clusters", "models", "engines"]


class ServiceError(PlannerError):
    """What the service answered instead: `problem` is its problem object, empty where there was none."""

    def __init__(self, status: int, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.problem = problem or {}

    @property
    def code(self) -> str:
        """The last part of the problem's type."""
        return str(self.problem.get("type", "")).rpartition("/")[2]


class PlannerClient:
    """Calls of one server. `key` is sent as a header only; close the client, or use it as a context."""

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        retries: int = RETRIES,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise BadInput(f"server {url[:100]!r} is no URL; give one such as http://127.0.0.1:8000")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._retries = retries
        self._http = httpx2.Client(
            base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def plan(self, request: Mapping[str, Any], on_event: OnEvent | None = None, *, wait: bool = True) -> Json:
        """Ask for a plan and wait until it has ended, however often the connection breaks; the Plan object."""
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Prefer": f"wait={2 if wait else 0}"}
        plan = self._send("POST", "/v1/plans", json=request, headers=headers, is_safe=True)
        if not wait or plan["state"] in FINAL:
            return plan
        return self.wait(plan["id"], on_event)

    def wait(self, plan_id: str, on_event: OnEvent | None = None) -> Json:
        """Follow the events of a plan until it has ended; the Plan object."""
        for kind, event in self.events(plan_id):
            if on_event is not None:
                on_event(kind, event)
        return self.read_plan(plan_id)

    def events(self, plan_id: str, after: str = "") -> Iterator[tuple[str, Json]]:
        """Events of a plan, (kind, data), until it has ended; a broken stream goes on where it broke."""
        tries = 0
        while True:
            try:
                for number, kind, data in self._stream(plan_id, after):
                    after, tries = number, 0
                    yield kind, data
                    if kind == "end":
                        return
            except (httpx2.TransportError, ServiceError) as error:
                if isinstance(error, ServiceError) and error.status not in AGAIN:
                    raise
                if tries >= self._retries:
                    raise _unreachable(error) from None
            if self.read_plan(plan_id)["state"] in FINAL:
                return
            self._pause(tries, None)
            tries += 1

    def read_plan(self, plan_id: str) -> Json:
        """A plan by its id."""
        return self._send("GET", f"/v1/plans/{_name(plan_id)}", is_safe=True)

    def list_plans(self, **filters: str | int | None) -> Json:
        """A page of plans: `items`, `next_cursor`; filters name, tag, model, cluster, state, limit, cursor."""
        wanted = {key: value for key, value in filters.items() if value is not None}
        return self._send("GET", "/v1/plans", params=wanted, is_safe=True)

    def rename_plan(self, plan_id: str, etag: str, changes: Mapping[str, Any]) -> Json:
        """Change name and tags of the plan that has this entity tag (`*`: whatever it has)."""
        path = f"/v1/plans/{_name(plan_id)}"
        return self._send("PATCH", path, json=changes, headers={"If-Match": etag})

    def cancel_plan(self, plan_id: str) -> Json:
        """Cancel a plan; one that was cancelled before stays so."""
        return self._send("POST", f"/v1/plans/{_name(plan_id)}/cancel", is_safe=True)

    def delete_plan(self, plan_id: str) -> None:
        """Forget a plan that has ended."""
        self._send("DELETE", f"/v1/plans/{_name(plan_id)}")

    def evaluate(self, request: Mapping[str, Any]) -> list[Json]:
        """`{evaluation}` or `{problem}` of each of `strategies`."""
        items: list[Json] = self._ask("evaluations", request)["items"]
        return items

    def check(self, request: Mapping[str, Any]) -> Json:
        """A strategy or a plan against limits and a baseline."""
        return self._ask("checks", request)

    def export(self, request: Mapping[str, Any]) -> Json:
        """A plan as settings of a framework: `files`, `losses`."""
        return self._ask("exports", request)

    def explain(self, request: Mapping[str, Any]) -> Json:
        """Why a plan; with `against`, why not another."""
        return self._ask("explanations", request)

    def size(self, request: Mapping[str, Any]) -> Json:
        """How many devices for so many tokens; `complete` is false where `max_seconds` did not do."""
        return self._ask("sizes", request)

    def compare(self, request: Mapping[str, Any]) -> Json:
        """Two plans side by side."""
        return self._ask("comparisons", request)

    def simulate(self, request: Mapping[str, Any]) -> Json:
        """The timeline of a plan's step."""
        return self._ask("simulations", request)

    def inspect(self, request: Mapping[str, Any]) -> Json:
        """What a model is made of."""
        return self._ask("inspections", request)

    def catalog(self, kind: CatalogKind, name: str = "") -> Json:
        """Everything of one kind as `items`, or one entry."""
        return self._send("GET", f"/v1/catalog/{kind}" + (f"/{_name(name)}" if name else ""), is_safe=True)

    def start_run(self, plan_id: str, request: Mapping[str, Any]) -> Json:
        """Launch a plan; sent once, so that no run starts twice."""
        return self._send("POST", f"/v1/plans/{_name(plan_id)}/runs", json=request)

    def read_run(self, run_id: str, part: Literal["", "/logs", "/metrics"] = "", **wanted: int) -> Json:
        """A run, its logs (`rank`, `after`) or its metrics."""
        return self._send("GET", f"/v1/runs/{_name(run_id)}{part}", params=wanted, is_safe=True)

    def read_artifact(self, run_id: str, name: str) -> bytes:
        """One of a run's artifacts."""
        return self._get(f"/v1/runs/{_name(run_id)}/artifacts/{_name(name)}").content

    def list_runs(self, **filters: str | int | None) -> Json:
        """A page of runs."""
        wanted = {key: value for key, value in filters.items() if value is not None}
        return self._send("GET", "/v1/runs", params=wanted, is_safe=True)

    def cancel_run(self, run_id: str) -> Json:
        """Cancel a run."""
        return self._send("POST", f"/v1/runs/{_name(run_id)}/cancel", is_safe=True)

    def _ask(self, what: str, request: Mapping[str, Any]) -> Json:
        """A question that changes nothing; explanations and size tables take as long as they are given."""
        seconds = float(request.get("max_seconds") or TIMEOUT_S) + TIMEOUT_S
        return self._send("POST", f"/v1/{what}", json=request, is_safe=True, timeout=seconds)

    def _send(self, method: str, path: str, *, is_safe: bool = False, **more: Any) -> Json:
        """The object that a call answers; raises ServiceError."""
        return _json_of(self._call(method, path, is_safe=is_safe, **more))

    def _get(self, path: str) -> httpx2.Response:
        """What a call answers that is no JSON; raises ServiceError."""
        answer = self._call("GET", path, is_safe=True)
        if answer.status_code >= 400:
            _json_of(answer)
        return answer

    def _call(self, method: str, path: str, *, is_safe: bool, **more: Any) -> httpx2.Response:
        """One call, again where that does no harm and may help; raises ServiceError."""
        tries = self._retries if is_safe else 0
        for number in range(tries + 1):
            try:
                answer = self._http.request(method, path, **more)
            except httpx2.TransportError as error:
                if number == tries:
                    raise _unreachable(error) from None
                self._pause(number, None)
                continue
            if answer.status_code not in AGAIN or number == tries or _took_too_long(answer):
                return answer
            self._pause(number, answer.headers.get("retry-after"))
        raise _unreachable(None)

    def _stream(self, plan_id: str, after: str) -> Iterator[tuple[str, str, Json]]:
        """Events of one connection: (id, kind, data)."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": after} if after else {})
        path = f"/v1/plans/{_name(plan_id)}/events"
        with self._http.stream("GET", path, headers=headers, timeout=EVENTS_TIMEOUT_S) as answer:
            if answer.status_code >= 400:
                answer.read()
                _json_of(answer)
            event: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    key, _, value = line.partition(":")
                    event[key] = value.removeprefix(" ")
                elif "data" in event:
                    yield event.get("id", ""), event.get("event", ""), json.loads(event["data"])
                    event = {}

    def _pause(self, number: int, stated: str | None) -> None:
        """Wait before another try: as long as the server says, else longer each time."""
        seconds = float(stated) if stated and stated.isdigit() else FIRST_PAUSE_S * 2.0**number
        sleep(min(seconds, LONGEST_PAUSE_S))


def read_client_key(path: Path) -> str:
    """The first key of a key file (the server's format); raises BadInput."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"key file {path} cannot be read ({error}); check the path") from None
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise BadInput(f"key file {path} holds no key; write the key into it")
    first, _, rest = keys[0].partition(" ")
    return rest.strip() if first in SCOPES and rest else keys[0]


def _took_too_long(answer: httpx2.Response) -> bool:
    """Whether the server had no answer in time, which asking the same again would only repeat."""
    return answer.status_code == 503 and b"/problems/time_limit" in answer.content


def _json_of(answer: httpx2.Response) -> Json:
    """The object of an answer; raises ServiceError for a problem."""
    try:
        found = answer.json() if answer.content else {}
    except ValueError:
        found = None
    if answer.status_code < 400 and isinstance(found, dict):
        return found
    problem = found if isinstance(found, dict) else {}
    detail = str(problem.get("detail") or f"the server answered {answer.status_code} without saying why")
    raise ServiceError(answer.status_code, detail, problem)


def _name(text: str) -> str:
    """One part of a path, whatever it holds."""
    from urllib.parse import quote

    return quote(text, safe="")


def _unreachable(error: Exception | None) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    what = type(error).__name__ if error is not None else "no answer"
    return ServiceError(0, f"the server cannot be reached ({what}: {str(error)[:200]}); check --server")
