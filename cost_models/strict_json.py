"""JSON of files, strictly: one meaning per text, no number that is none, one sentence for what is wrong."""

import json
from collections.abc import Callable
from typing import Any, Final

MAX_DIGITS: Final = 400


def parse_json(text: str) -> Any:
    """The value of a text; raises ValueError saying what is wrong and where."""
    return _parsed(text, _no_constant)


def parse_config(text: str) -> Any:
    """The same for a config.json, in which Python's library writes an infinite limit as a bare Infinity.

    It becomes `{"__float__": "Infinity"}`, which is how transformers spells it in strict JSON.
    """
    return _parsed(text, _spelt_infinity)


def _parsed(text: str, constant: Callable[[str], Any]) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=constant, parse_int=_short_int)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise ValueError(f"is not valid JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; two values under one key would silently drop one."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"gives the key {key[:80]!r} twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"holds {name}, which is not a JSON number")


def _spelt_infinity(name: str) -> Any:
    return _no_constant(name) if name == "NaN" else {"__float__": name}


def _short_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"holds a number of {len(digits):,} digits; give at most {MAX_DIGITS}")
    return int(digits)
