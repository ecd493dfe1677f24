"""JSON from outside, strictly: one meaning per body, no number or text that breaks later.

Refused: NaN and infinities, numbers too large for a double, integers of more than 18 digits, keys given
twice, lone surrogates, NUL (no database takes it as text), deep nesting, bytes that are not UTF-8.
"""

import json
import math
import re
from typing import Any, Final

from api.errors import Fault, Problem, clean

MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 18
_STRING_OR_CONSTANT: Final = re.compile(r'"(?:\\.|[^"\\])*"|-?(?:NaN|Infinity)', re.DOTALL)


class _Refused(ValueError):
    """Parsed, but not taken."""


def parse_json(body: bytes) -> Any:
    """The value of a body; raises Problem 400 with the byte offset where it does not parse."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed("is not UTF-8", error.start) from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_int=_short_int,
            parse_float=_finite_float,
        )
    except json.JSONDecodeError as error:
        raise _malformed(f"is not JSON ({error.msg})", len(text[: error.pos].encode("utf-8"))) from None
    except RecursionError:
        raise _too_deep() from None
    except _Refused as error:
        constant = _first_constant(text)
        detail = f"{error}" + (f" at byte {constant}" if constant is not None else "")
        raise Problem(400, "malformed", f"the body {detail}", [Fault("", "malformed", detail)]) from None
    _check_text_and_depth(value)
    return value


def _malformed(what: str, offset: int) -> Problem:
    detail = f"the body {what} at byte {offset}; send one JSON object"
    return Problem(400, "malformed", detail, [Fault("", "malformed", detail)])


def _too_deep() -> Problem:
    detail = f"the body is nested deeper than {MAX_DEPTH} levels; flatten it"
    return Problem(400, "malformed", detail, [Fault("", "malformed", detail)])


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"gives the key '{clean(twice, 40)}' twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise _Refused(f"holds {name}, which is not JSON")


def _first_constant(text: str) -> int | None:
    """Byte offset of the first NaN or Infinity outside strings."""
    for match in _STRING_OR_CONSTANT.finditer(text):
        if not match.group().startswith('"'):
            return len(text[: match.start()].encode("utf-8", "surrogatepass"))
    return None


def _short_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise _Refused(f"holds an integer of {len(digits.lstrip('-'))} digits; give at most {MAX_DIGITS}")
    return int(digits)


def _finite_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Refused("holds a number too large for a double")
    return number


def _check_text_and_depth(value: Any) -> None:
    """Walk the value without recursion; raises Problem for lone surrogates and deep nesting."""
    todo = [(value, 1)]
    while todo:
        at, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise _too_deep()
        if isinstance(at, str):
            _check_text(at)
        elif isinstance(at, dict):
            for key in at:
                _check_text(key)
            todo.extend((inner, depth + 1) for inner in at.values())
        elif isinstance(at, list):
            todo.extend((inner, depth + 1) for inner in at)


def _check_text(text: str) -> None:
    if "\0" in text:
        detail = "the body holds the character NUL (\\u0000); leave it out"
        raise Problem(400, "malformed", detail, [Fault("", "malformed", detail)])
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        detail = "the body holds a lone surrogate (such as \\ud800); send well-formed text"
        raise Problem(400, "malformed", detail, [Fault("", "malformed", detail)]) from None
