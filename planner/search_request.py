"""Checks of a SearchRequest against the strategy's vocabulary and the objectives of this version."""

from typing import Final

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.strategy import parse_strategy, strategy_from_mapping
from planner.request import SearchRequest

OBJECTIVES: Final = ("step_time",)


def check_search(search: SearchRequest) -> None:
    """Refuse unknown pins and bans and unavailable objectives; raises BadInput naming each."""
    if search.objective not in OBJECTIVES:
        raise BadInput(
            f"objective {search.objective} is not in this version; use {', '.join(OBJECTIVES)}",
            pointer="/search/objective",
            allowed=OBJECTIVES,
        )
    try:
        strategy_from_mapping(search.pins)
    except IllegalStrategy as error:
        raise BadInput(f"pin: {_reason(error)}", pointer="/search/pins") from None
    for index, ban in enumerate(search.bans):
        try:
            parse_strategy(ban)
        except IllegalStrategy as error:
            raise BadInput(f"ban: {_reason(error)}", pointer=f"/search/bans/{index}") from None


def _reason(error: IllegalStrategy) -> str:
    return "; ".join(violation.sentence() for violation in error.violations)
