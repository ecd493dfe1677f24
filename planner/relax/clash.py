"""Which pins and bans leave nothing legal together, and what each of them could be beside the others."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.candidates import ROW_AXES, enumerate_candidates
from planner.families import Families
from planner.request import SearchRequest
from planner.restrictions import read_restrictions, shown_value
from planner.situation import Situation

MOST_NAMED = 4
"""Values that an axis is said to take."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One pin (its axis and value) or ban (its text)."""

    kind: str
    axis: str
    text: str

    @property
    def name(self) -> str:
        """`pin tp=3`, `ban tp=1..8`."""
        return f"{self.kind} {self.text}"


def clash(situation: Situation, search: SearchRequest, deadline: float = float("inf")) -> str:
    """The pins and bans that leave nothing legal, none of which can be spared, in words; empty without any.

    One after the other is left out; where nothing is legal without it, it plays no part. Past the deadline (of
    time.monotonic()) those not tried yet are kept.
    """
    if situation.cluster.is_mixed:
        return ""
    kept = list(_asked(search))
    if not kept or _legal(situation, search, []).size == 0:
        return ""
    would_do: dict[_Asked, tuple[str, ...]] = {}
    for one in list(kept):
        if time.monotonic() > deadline:
            break
        others = [other for other in kept if other != one]
        families = _legal(situation, search, others)
        if families.size == 0:
            kept = others
        elif one.kind == "pin":
            would_do[one] = _nearest(one, legal_values(families, one.axis))
    named = [each.name + _in_brackets(would_do.get(each, ())) for each in kept]
    *head, last = named
    if not head:
        return f"{last} leaves nothing"
    return f"{', '.join(head)} and {last} leave nothing together"


def legal_values(families: Families, axis: str) -> tuple[str, ...]:
    """Values that an axis has in some legal mesh, rising or in the order of the space; none for axes kept apart."""
    rows, options = families.rows, families.options
    if axis in ("schedule", "vpp"):
        column = options.pipes[families.pipes_legal.any(0)][:, 0 if axis == "schedule" else 1]
        return tuple(shown_value(axis, int(n)) for n in np.unique(column))
    states = [options.states[i] for i in np.flatnonzero(np.any(families.states_legal, axis=0))]
    kinds = [options.kinds[i] for i in np.flatnonzero(np.any(families.kinds_legal, axis=0))]
    if axis == "zero":
        return tuple(str(n) for n in sorted({state.zero for state in states}))
    if axis == "dp_replicate":
        return tuple(str(n) for n in sorted({state.replicate for state in states}))
    words = {
        "offload": [state.offload.text() for state in states],
        "act_offload": [kind.activations.text() for kind in kinds],
        "cp_kind": [kind.cp_kind for kind in kinds],
        "order": ["-".join(kind.order) for kind in kinds],
    }
    if axis in words:
        return tuple(dict.fromkeys(words[axis]))
    if axis == "dp_shard":
        replicas = np.asarray([state.replicate for state in options.states], dtype=np.int64)
        shards = (rows.dp[:, None] // replicas[None, :])[families.states_legal]
        return tuple(str(n) for n in np.unique(shards))
    found = np.unique(getattr(rows, axis)).tolist() if axis in ROW_AXES or axis == "dp" else []
    return tuple(shown_value(axis, int(n)) for n in found)


def _asked(search: SearchRequest) -> Iterator[_Asked]:
    for axis, value in search.pins.items():
        shown = str(value).lower() if isinstance(value, bool) else value
        yield _Asked("pin", axis, f"{axis}={shown}")
    for ban in search.bans:
        yield _Asked("ban", ban.partition("=")[0], ban)


def _legal(situation: Situation, search: SearchRequest, asked: list[_Asked]) -> Families:
    """The legal layouts under some of the pins and bans."""
    pins = {each.axis: search.pins[each.axis] for each in asked if each.kind == "pin"}
    bans = tuple(each.text for each in asked if each.kind == "ban")
    return enumerate_candidates(situation.engine, situation.facts, read_restrictions(pins, bans)).families


def _nearest(one: _Asked, values: tuple[str, ...]) -> tuple[str, ...]:
    """The values closest to the pinned number, rising; of words the first ones."""
    pinned = one.text.partition("=")[2]
    if not pinned.isdigit() or not all(value.isdigit() for value in values):
        return values[:MOST_NAMED]
    near = sorted(values, key=lambda value: (abs(int(value) - int(pinned)), int(value)))[:MOST_NAMED]
    return tuple(sorted(near, key=int))


def _in_brackets(values: tuple[str, ...]) -> str:
    """` (1, 2 or 4 would do)`."""
    *head, last = values or ("",)
    return f" ({', '.join(head)} or {last} would do)" if head else f" ({last} would do)" if last else ""
