"""What is wrong with a description in a file: one sentence that names keys, what they hold and what to write."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from cost_models.suggest import with_hint

_FOLLOWING: Final = "devices_per_domain"
"""A key that follows from the devices of the groups, so that it lacks only where those are wrong."""
_SHAPES: Final = {
    "model_type": "write a table, or for a device its name in quotes",
    "tuple_type": "write a list ([[…]] in TOML)",
}
MAX_NAMED: Final = 4


def fault_sentence(faults: Sequence[ErrorDetails], example: str) -> tuple[str, list[str]]:
    """The sentence (without the description's name) and the keys down to the place it points at."""
    firm = [fault for fault in faults if not _follows(fault, faults)] or list(faults)
    wrong = [fault for fault in firm if fault["type"] not in {"missing", "extra_forbidden"}]
    unknown = [fault for fault in firm if fault["type"] == "extra_forbidden"]
    missing = [fault for fault in firm if fault["type"] == "missing"]
    place = (wrong or unknown or missing)[0]
    if wrong:
        return _wrong(wrong[0]), keys_of(place)
    names = [".".join(keys_of(fault)) for fault in missing]
    if not missing:
        return f"{_unknown(unknown, ())}; remove it or correct its spelling", keys_of(place)
    told = f"{_unknown(unknown, names)}; " if unknown else ""
    return f"{told}{_joined(names)} missing; {example}", keys_of(missing[0])


def keys_of(fault: ErrorDetails) -> list[str]:
    """Keys down to a fault; pydantic puts the validator of a union's member between them ("function-after[...]")."""
    return [str(part)[:80] for part in fault["loc"] if "[" not in str(part)]


def _follows(fault: ErrorDetails, faults: Sequence[ErrorDetails]) -> bool:
    """Whether a fault is only what others of the same description lead to."""
    if fault["type"] == "missing" and keys_of(fault)[-1:] == [_FOLLOWING]:
        return True
    if fault["type"] == "string_type" and isinstance(fault["input"], dict):
        return True  # a table where a name may stand, too: what the table lacks is said
    depth = len(fault["loc"])
    within = (other["loc"][:depth] == fault["loc"] and len(other["loc"]) > depth for other in faults)
    return fault["type"] == "too_short" and any(within)


def _joined(names: list[str]) -> str:
    return f"{' and '.join(names[:MAX_NAMED])} {'is' if len(names) == 1 else 'are'}"


def _unknown(unknown: list[ErrorDetails], missing: Sequence[str]) -> str:
    """Keys that mean nothing, beside the missing one of the same table that may have been meant."""
    names = [".".join(keys_of(fault)) for fault in unknown]
    beside = [name for name in missing if name.rpartition(".")[0] == names[0].rpartition(".")[0]]
    meant = [name.rpartition(".")[2] for name in beside]
    return f"unknown key {with_hint(names[0].rpartition('.')[2], meant, ' and '.join(names[:MAX_NAMED]))}"


def _wrong(first: ErrorDetails) -> str:
    """A value that is none, with what it holds where that is short."""
    where, given = ".".join(keys_of(first)) or "it", first["input"]
    if first["type"] in _SHAPES:
        return f"{where} is {_short(given)}; {_SHAPES[first['type']]}"
    sentence = first["msg"].removeprefix("Value error, ")
    plain = isinstance(given, bool | int | float | str) and first["type"] != "value_error"
    return f"{where}: {sentence}{f', not {_short(given)}' if plain else ''}; correct it"


def _short(given: Any) -> str:
    return "a table" if isinstance(given, dict) else repr(given)[:60]
