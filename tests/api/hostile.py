"""Hostile bodies by seed: valid ones changed in every way that JSON, numbers, text and sizes allow, and raw bytes."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from api.examples import EXAMPLES

LONG = "9" * 400
RAW_NUMBERS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e999",
    "-1e999",
    LONG,
    "-" + LONG,
    "1" * 19,
    "0x10",
    "01",
    "+1",
    "1.",
)
TEXTS = (
    "",
    "\x00",
    "\u202e",
    "\ufeff",
    "\u0301" * 50,
    "\U0001f600" * 20,
    "../../etc/passwd",
    "/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:1/x",
    "os:system",
    "package.module:factory",
    "{{7*7}}",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "%s%n%x",
    "a" * 5000,
    "tp=" + "9" * 50,
    "tp=1," * 500,
    "stages=" + "+".join(["1"] * 3000),
    "order=" + "tp-" * 200,
)
VALUES = (
    None,
    True,
    False,
    -1,
    0,
    2**31,
    2**53,
    10**17,
    -(10**17),
    1e308,
    -1e-320,
    0.5,
    [],
    {},
    [[]],
    {"": {}},
    "8",
)
KEYS = ("", "__proto__", "constructor", "kind", "\u0000", "a" * 300, "model", "path", "$ref", "url")
BYTES = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x00", b"\xef\xbb\xbf", b"\x80")


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*prefix, key)
        yield from paths(inner, (*prefix, key))


def place(value: Any, path: tuple[Any, ...], new: Any) -> None:
    """Replace what stands at a path."""
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def at(value: Any, path: tuple[Any, ...]) -> Any:
    """What stands at a path."""
    for key in path:
        value = value[key]
    return value


Change = Callable[[random.Random, Any], str]


def a_value(draw: random.Random, body: Any) -> str:
    """One value of another type or size."""
    new = draw.choice((*VALUES, *TEXTS))
    place(body, draw.choice(list(paths(body))), new)
    return json.dumps(body)


def several_values(draw: random.Random, body: Any) -> str:
    """Some values of another type or size."""
    for _ in range(draw.randint(2, 5)):
        found = list(paths(body))
        if found:
            place(body, draw.choice(found), copy.deepcopy(draw.choice((*VALUES, *TEXTS))))
    return json.dumps(body, ensure_ascii=draw.random() < 0.5)


def a_number(draw: random.Random, body: Any) -> str:
    """A number that JSON or a double does not have."""
    place(body, draw.choice(list(paths(body))), "@number@")
    return json.dumps(body).replace('"@number@"', draw.choice(RAW_NUMBERS))


def a_missing_key(draw: random.Random, body: Any) -> str:
    """A key less."""
    path = draw.choice(list(paths(body)))
    del at(body, path[:-1])[path[-1]]
    return json.dumps(body)


def a_strange_key(draw: random.Random, body: Any) -> str:
    """A key more."""
    objects = [(), *(path for path in paths(body) if isinstance(at(body, path), dict))]
    at(body, draw.choice(objects))[draw.choice(KEYS)] = draw.choice((*VALUES, *TEXTS))
    return json.dumps(body)


def a_key_twice(draw: random.Random, body: Any) -> str:
    """One key of an object twice."""
    key = draw.choice(list(body))
    return json.dumps(body)[:-1] + f', "{key}": {json.dumps(body[key])}}}'


def a_surrogate(draw: random.Random, body: Any) -> str:
    """Half a character, as a value or a key."""
    half = draw.choice(("\\ud800", "\\udfff", "\\ud83d\\ud83d"))
    place(body, draw.choice(list(paths(body))), "@half@")
    text = json.dumps(body).replace("@half@", half)
    return text if draw.random() < 0.7 else text[:-1] + f', "{half}": 1}}'


def deep(draw: random.Random, body: Any) -> str:
    """Nesting, closed or not, as the body or inside it."""
    depth = draw.choice((60, 65, 1000, 50_000))
    opened, closed = draw.choice((("[", "]"), ('{"a":', "}")))
    nest = opened * depth + "1" + closed * (depth if draw.random() < 0.8 else depth // 2)
    if draw.random() < 0.5:
        return nest
    place(body, draw.choice(list(paths(body))), "@deep@")
    return json.dumps(body).replace('"@deep@"', nest)


def wide(draw: random.Random, body: Any) -> str:
    """Very many values."""
    many = draw.choice(
        (list(range(20_000)), {f"k{n}": n for n in range(5000)}, ["tp=1"] * 1500, "x" * 90_000)
    )
    place(body, draw.choice(list(paths(body))), many)
    return json.dumps(body)


def cut(draw: random.Random, body: Any) -> str:
    """A body that ends too early, or goes on."""
    text = json.dumps(body)
    return (
        text[: draw.randrange(len(text))]
        if draw.random() < 0.7
        else text + draw.choice(("}", "{}", ",", "x"))
    )


CHANGES: tuple[Change, ...] = (
    a_value, several_values, a_number, a_missing_key, a_strange_key, a_key_twice, a_surrogate, deep, wide, cut,
)  # fmt: skip


def raw(draw: random.Random, text: str) -> bytes:
    """A text with bytes that are not UTF-8 somewhere in it."""
    content = text.encode("utf-8")
    where = draw.randrange(len(content) + 1)
    return content[:where] + draw.choice(BYTES) + content[where:]


def hostile(seed: int, paths_to_try: tuple[str, ...]) -> tuple[str, bytes]:
    """A path and a body; the same for the same seed."""
    draw = random.Random(seed)
    path = draw.choice(paths_to_try)
    text = draw.choice(CHANGES)(draw, copy.deepcopy(EXAMPLES[path]))
    return path, raw(draw, text) if draw.random() < 0.1 else text.encode("utf-8", "surrogatepass")
