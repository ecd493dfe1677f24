"""Pins and bans: what a user fixes and forbids, checked by name and value before the search."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cost_models.errors import BadInput
from cost_models.mesh import SCHEDULES
from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import ALL_LAYERS, Recompute, parse_recompute
from cost_models.suggest import did_you_mean

_WHOLE: Final = re.compile(r"[0-9]{1,9}")
RECOMPUTE_KINDS: Final = ("none", "selective", "full")
SEARCHED = (
    "tp",
    "cp",
    "pp",
    "vpp",
    "ep",
    "etp",
    "dp",
    "dp_replicate",
    "zero",
    "mbs",
    "sp",
    "schedule",
    "recompute",
)


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Pinned value per key, and banned (key, value) pairs; values as integers, recompute parsed."""

    pins: Mapping[str, int]
    bans: frozenset[tuple[str, int]]
    recompute: Recompute | None = None
    banned_recompute: frozenset[str] = frozenset()

    def takes(self, key: str, value: int) -> bool:
        """Whether an axis may have a value."""
        return self.pins.get(key, value) == value and (key, value) not in self.bans

    def allowed(self, key: str, values: Iterable[int]) -> tuple[int, ...]:
        """The allowed values of an axis; a pinned value outside the usual ones is tried all the same."""
        found = (self.pins[key],) if key in self.pins else tuple(values)
        return tuple(value for value in found if (key, value) not in self.bans)

    def scopes(self, values: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        """Recompute bases to try."""
        if self.recompute is not None:
            return (self.recompute.scopes,)
        kept = tuple(s for s in values if not ("selective" in self.banned_recompute and s))
        return tuple(s for s in kept if not ("none" in self.banned_recompute and not s)) or kept

    def takes_recompute(self, recompute: Recompute) -> bool:
        """Whether pins and bans leave a recompute."""
        if self.recompute is not None:
            return recompute == self.recompute
        kind = "selective" if recompute.scopes else "full" if recompute.full else "none"
        return kind not in self.banned_recompute

    @property
    def may_recompute_fully(self) -> bool:
        """Whether the number of fully recomputed layers is still free."""
        return self.recompute is None and "full" not in self.banned_recompute

    @property
    def all_recomputed(self) -> bool:
        """Whether recompute=full is pinned."""
        return self.recompute is not None and self.recompute.full == ALL_LAYERS


def read_restrictions(pins: Mapping[str, object], bans: Iterable[str]) -> Restrictions:
    """Pins and bans from the search request; raises BadInput for unknown keys and values."""
    numbers = {key: _number(key, value, "/search/pins") for key, value in pins.items() if key != "recompute"}
    recompute = None
    if "recompute" in pins:
        recompute = parse_recompute(str(pins["recompute"]))
        if recompute.full not in (0, ALL_LAYERS):
            raise BadInput(
                f"recompute={pins['recompute']} cannot be pinned; pin none, selective, selective:scopes or full, and "
                "evaluate full:K as a strategy",
                pointer="/search/pins/recompute",
            )
    banned: set[tuple[str, int]] = set()
    banned_recompute: set[str] = set()
    for ban in bans:
        key, _, value = ban.partition("=")
        if key == "recompute":
            banned_recompute.add(_recompute_ban(value))
        else:
            banned.add((key, _number(key, value, "/search/bans")))
    recompute = _recompute_left(recompute, banned_recompute)
    return Restrictions(numbers, frozenset(banned), recompute, frozenset(banned_recompute))


def _recompute_left(pinned: Recompute | None, banned: set[str]) -> Recompute | None:
    """What is fixed once the bans have spoken; raises BadInput where they leave nothing."""
    kind = None if pinned is None else "full" if pinned.full else "selective" if pinned.scopes else "none"
    if kind in banned:
        raise BadInput(f"recompute={kind} is pinned and banned; drop one of the two", pointer="/search/bans")
    if banned >= set(RECOMPUTE_KINDS):
        raise BadInput("every kind of recompute is banned; leave one", pointer="/search/bans")
    only_full = pinned is None and banned >= {"none", "selective"}
    return Recompute(full=ALL_LAYERS) if only_full else pinned


def _recompute_ban(value: str) -> str:
    if value not in RECOMPUTE_KINDS:
        raise BadInput(
            f"recompute={value:.60} cannot be banned; ban none, selective or full",
            pointer="/search/bans",
            allowed=RECOMPUTE_KINDS,
        )
    return value


def _number(key: str, value: object, pointer: str) -> int:
    """An axis value as an integer."""
    if key not in SEARCHED:
        known = ", ".join(SEARCHED)
        raise BadInput(
            f"unknown search key {key:.60}; {did_you_mean(key, SEARCHED)}known: {known}",
            pointer=pointer,
            allowed=SEARCHED,
        )
    text = str(value).strip().lower()
    if key == "schedule":
        names = tuple(s.value for s in ScheduleName)
        if text not in names:
            raise BadInput(
                f"unknown schedule {text:.60}; use {', '.join(names)}", pointer=pointer, allowed=names
            )
        return SCHEDULES.index(ScheduleName(text))
    if key == "sp":
        if text not in ("true", "false", "0", "1"):
            raise BadInput(f"sp={text:.60} is not true or false; use sp=true or sp=false", pointer=pointer)
        return int(text in ("true", "1"))
    low = 0 if key == "zero" else 1
    if not _WHOLE.fullmatch(text) or int(text) < low:
        raise BadInput(
            f"{key}={text:.60} is not a whole number from {low} to 999,999,999; use for example {key}=2",
            pointer=pointer,
        )
    return int(text)
