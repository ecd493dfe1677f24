"""The OpenAPI document: what the framework derives, with problems, keys, examples and links of every call."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import FastAPI

from api.examples import EXAMPLES
from api.guard import HEALTH_PATHS, is_page, scope_of
from api.settings import Settings

PROBLEM: Final = "#/components/schemas/ProblemBody"
TEXTS: Final[Mapping[int, str]] = {
    400: "The body does not parse",
    401: "A key is required",
    403: "The key's scope, the Host or the Origin does not allow it",
    404: "No such resource",
    408: "The body takes too long to arrive",
    409: "The plan's state does not allow it",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "The request cannot be used",
    429: "Too many requests; Retry-After says when to ask again",
    503: "Not at present; Retry-After says when to ask again",
}
NAMES_A_PLAN: Final = frozenset({"explanations", "comparisons", "simulations", "exports", "checks"})
EVENT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[0-9]+$"},
        "event": {"type": "string", "enum": ["state", "progress", "incumbent", "end"]},
        "data": {"type": "string", "description": "A JSON object in ASCII"},
    },
    "required": ["id", "event", "data"],
    "additionalProperties": False,
}
"""One server-sent event."""
_ID: Final = "$response.body#/id"
LINKS: Final[Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any] | None]]] = {
    "read": ("read_plan", {"plan_id": _ID}, None),
    "events": ("read_events", {"plan_id": _ID}, None),
    "rename": ("rename_plan", {"plan_id": _ID}, None),
    "cancel": ("cancel_plan", {"plan_id": _ID}, None),
    "delete": ("delete_plan", {"plan_id": _ID}, None),
    "check": ("check_strategy", {}, {"plan_id": _ID}),
    "simulate": ("simulate_plan", {}, {"plan_id": _ID}),
    "explain": ("explain_plan", {}, {"plan_id": _ID, "max_seconds": 0}),
    "export": ("export_plan", {}, {"plan_id": _ID, "format": "megatron"}),
}
"""What can be done with a plan that was made: the call by its function, its path, its body."""


def describe(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The document, ready for JSON."""
    derived = FastAPI.openapi(app)
    for path, method, operation in _operations(derived):
        if is_page(path):
            continue
        _describe_answers(path, method, operation)
        if path not in HEALTH_PATHS:
            scope = scope_of(method.upper(), path)
            operation["x-scope"] = scope
            operation["security"] = [{"key": []}] if settings.needs_key else [{"key": []}, {}]
        if path in EXAMPLES and "requestBody" in operation:
            operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLES[path]
    _link(derived, _names(derived))
    derived.setdefault("components", {})["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "A key of planner-server keys or its file"}
    }
    return derived


def _names(derived: Mapping[str, Any]) -> dict[str, str]:
    """Operation ids by the function that answers, whose name they begin with."""
    ids = [operation["operationId"] for _, _, operation in _operations(derived)]
    functions = [function for function, _, _ in LINKS.values()]
    return {name: found for name in functions for found in ids if found.startswith(f"{name}_v1_")}


def _operations(derived: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in derived["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _describe_answers(path: str, method: str, operation: dict[str, Any]) -> None:
    """Every status that the call can answer, problems as problem+json; nothing that it cannot."""
    answers: dict[str, Any] = operation["responses"]
    has_body = "requestBody" in operation
    for status in ("400", "408", "413", "415"):
        if not has_body:
            answers.pop(status, None)
    if method == "get" and not operation.get("parameters"):
        answers.pop("422", None)
    for number in _more(path, has_body):
        answers.setdefault(str(number), {"description": TEXTS[number]})
    for status, answer in answers.items():
        answer.setdefault("headers", {})["X-Request-Id"] = {
            "schema": {"type": "string"},
            "description": "The id of the request",
        }
        if "text/event-stream" in answer.get("content", {}):
            answer["content"]["text/event-stream"] = {"schema": dict(EVENT)}
        if int(status) >= 400:
            answer["content"] = {"application/problem+json": {"schema": {"$ref": PROBLEM}}}
        if status in ("429", "503"):
            answer["headers"]["Retry-After"] = {"schema": {"type": "string"}, "description": "Seconds"}
        if status == "401":
            answer["headers"]["WWW-Authenticate"] = {"schema": {"type": "string"}}


def _more(path: str, has_body: bool) -> Iterator[int]:
    if path in HEALTH_PATHS:
        yield from (503,) if path == "/readyz" else ()
        return
    yield from (401, 403)
    last = path.rpartition("/")[2]
    if "{" in path or last in NAMES_A_PLAN:
        yield 404
    if last in NAMES_A_PLAN:
        yield 409
    if path.startswith("/v1/"):
        yield from (429, 503)
    if has_body:
        yield from (400, 408, 413, 415, 422)


def _link(derived: Mapping[str, Any], names: Mapping[str, str]) -> None:
    made = derived["paths"].get("/v1/plans", {}).get("post", {}).get("responses", {})
    links: dict[str, Any] = {}
    for title, (name, parameters, body) in LINKS.items():
        if name not in names:
            continue
        links[title] = {"operationId": names[name], "parameters": dict(parameters)}
        if body is not None:
            links[title]["requestBody"] = dict(body)
    for status in ("200", "202"):
        if status in made:
            made[status]["links"] = links
