"""Errors as problem+json (RFC 9457): ASCII only, with pointers, at most a short clean piece of the input."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import HTTPException
from fastapi.responses import Response

from cost_models.errors import BadInput
from planner.worker import problem_of

MAX_DETAIL: Final = 1000
MAX_POINTER: Final = 200
MAX_ERRORS: Final = 50

TITLES: Final[Mapping[int, str]] = {
    400: "Malformed request",
    401: "Key required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    409: "Conflict",
    412: "Precondition failed",
    413: "Body too large",
    415: "Unsupported media type",
    422: "Request cannot be used",
    428: "Precondition required",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}
CODES: Final[Mapping[int, str]] = {400: "malformed", 404: "not_found", 405: "method_not_allowed"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where (a JSON pointer), which rule, the sentence, the legal values."""

    pointer: str
    code: str
    detail: str
    allowed: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """One entry of `errors`."""
        values: dict[str, object] = {
            "pointer": clean(self.pointer, MAX_POINTER),
            "code": self.code,
            "detail": clean(self.detail),
        }
        return values | (
            {"allowed": [clean(value, MAX_POINTER) for value in self.allowed]} if self.allowed else {}
        )


class Problem(HTTPException):
    """An answer of class 4xx or 5xx; an HTTPException, so that body parsing passes it on."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, clean(detail), dict(headers) if headers else None)
        self.code = code
        self.faults = tuple(faults)

    def to_json(self, request_id: str) -> dict[str, object]:
        """The problem object of the contract."""
        return {
            "type": f"/problems/{self.code}",
            "title": TITLES.get(self.status_code, "Error"),
            "status": self.status_code,
            "detail": self.detail,
            "request_id": request_id,
            "errors": [fault.to_json() for fault in self.faults[:MAX_ERRORS]],
        }


def problem_response(problem: Problem, request_id: str) -> Response:
    """The problem as an HTTP answer."""
    body = json.dumps(problem.to_json(request_id), ensure_ascii=True, allow_nan=False)
    return Response(body, problem.status_code, problem.headers, "application/problem+json")


def problem_of_bad_input(error: BadInput) -> Problem:
    """422 from what the planner found wrong."""
    return problem_of_worker(problem_of(error))


def problem_of_worker(found: Mapping[str, Any]) -> Problem:
    """422 (or 500) from the `problem` object of a search process."""
    code, detail = str(found["code"]), str(found["detail"])
    if code == "internal_error":
        return Problem(500, code, detail)
    violations = found.get("violations") or ()
    faults = [Fault(found["pointer"], v["rule"], v["detail"], tuple(v["nearest"])) for v in violations]
    return Problem(
        422, code, detail, faults or [Fault(found["pointer"], code, detail, tuple(found["allowed"]))]
    )


def problem_of_validation(errors: Sequence[Mapping[str, Any]], body: object) -> Problem:
    """422 from pydantic's errors; one fault a pointer."""
    faults: dict[str, Fault] = {}
    for error in errors:
        pointer = _pointer(error, body)
        known = faults.get(pointer)
        text = str(error["msg"]) if known is None else f"{known.detail}; or: {error['msg']}"
        faults[pointer] = Fault(pointer, str(error["type"]), text)
    first = next(iter(faults.values()))
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    where = clean(first.pointer, MAX_POINTER) or "the body"
    return Problem(422, "invalid_request", f"{where}: {first.detail}{more}", tuple(faults.values()))


def clean(text: str, limit: int = MAX_DETAIL) -> str:
    """Text as printable ASCII of limited length; anything else becomes `?`."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if " " <= c <= "~" else "?" for c in " ".join(cut.split()))


def _pointer(error: Mapping[str, Any], body: object) -> str:
    """JSON pointer of a pydantic error, without names of union members, which the body lacks.

    A parameter of the query, the path or a header is pointed at by its name, as if it stood in a body.
    """
    place, path = error["loc"][:1], error["loc"]
    if place in {("query",), ("path",), ("header",)}:
        return "".join(f"/{part}" for part in path[1:2])
    path = [part for part in path if part != "body"] if place == ("body",) else path
    parts: list[str] = []
    at: Any = body
    for index, part in enumerate(path):
        inside = (isinstance(at, dict) and part in at) or (
            isinstance(at, list) and isinstance(part, int) and part < len(at)
        )
        is_missing_key = index == len(path) - 1 and error["type"] == "missing"
        if inside or is_missing_key:
            parts.append(str(part).replace("~", "~0").replace("/", "~1"))
            at = at[part] if inside else None
    return "".join(f"/{part}" for part in parts)
