"""Checks of a SearchRequest before any work: objectives and what they need, pins and bans."""

from collections.abc import Iterable
from typing import Final, get_args

from cost_models.errors import BadInput, IllegalStrategy
from planner.request import Objective, SearchRequest
from planner.restrictions import read_restrictions

OBJECTIVES: Final[tuple[str, ...]] = get_args(Objective)


def check_search(search: SearchRequest) -> None:
    """Refuse a deadline without an amount, and pins and bans that no search takes; raises BadInput naming each."""
    run = search.run
    if run.deadline_s is not None and run.tokens is None:
        raise BadInput(
            f"a deadline of {run.deadline_s:g} s without a number of tokens; give --tokens as well",
            pointer="/search/run/tokens",
        )
    try:
        read_restrictions(search.pins, search.bans)
    except IllegalStrategy as error:
        reason = "; ".join(violation.sentence() for violation in error.violations)
        raise BadInput(f"pin or ban: {reason}", pointer="/search/pins") from None


def pins_of(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Pins from key and value pairs; raises BadInput where one key has two values."""
    pins: dict[str, object] = {}
    for key, stated in pairs:
        value = str(stated) if isinstance(stated, float) else stated
        if pins.setdefault(key, value) != value:
            raise BadInput(f"pin {key[:40]} is given twice with different values; give it once")
    return pins
