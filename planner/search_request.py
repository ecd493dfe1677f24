"""Checks of a SearchRequest before any work: the objectives of this version, pins and bans."""

from typing import Final

from cost_models.errors import BadInput, IllegalStrategy
from planner.request import SearchRequest
from planner.restrictions import read_restrictions

OBJECTIVES: Final = ("step_time",)


def check_search(search: SearchRequest) -> None:
    """Refuse unavailable objectives, and pins and bans that no search takes; raises BadInput naming each."""
    if search.objective not in OBJECTIVES:
        raise BadInput(
            f"objective {search.objective} is not in this version; use {', '.join(OBJECTIVES)}",
            pointer="/search/objective",
            allowed=OBJECTIVES,
        )
    try:
        read_restrictions(search.pins, search.bans)
    except IllegalStrategy as error:
        reason = "; ".join(violation.sentence() for violation in error.violations)
        raise BadInput(f"pin or ban: {reason}", pointer="/search/pins") from None
