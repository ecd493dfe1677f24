"""Which of a user's runs a fit does not see, and whether it predicts them no worse."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

FEWEST: Final = 3
"""Runs that a fit needs."""
HELD_EVERY: Final = 5
SLACK: Final = 0.002
"""By how much the error of runs that were not fitted to may grow: the rounding of few runs."""

Row = TypeVar("Row")


def split(rows: Sequence[Row], name: Callable[[Row], str]) -> tuple[list[Row], list[Row]]:
    """Runs that are fitted to, and the one in five that is not, by a hash of its name, the same every time.

    Where runs are few, or all of them would be held out, all are fitted to.
    """
    held = [row for row in rows if _is_held(name(row))] if len(rows) >= HELD_EVERY else []
    return [row for row in rows if row not in held] or list(rows), held


def before_and_after(
    kept: Sequence[Row],
    held: Sequence[Row],
    before: Callable[[Sequence[Row]], float],
    after: Callable[[Sequence[Row]], float],
) -> dict[str, float]:
    """Mean errors of both kinds of runs before and after a fit; of the fitted ones twice where none was held out."""
    unseen = held or kept
    return {
        "fitted_before": before(kept),
        "fitted_after": after(kept),
        "held_out_before": before(unseen),
        "held_out_after": after(unseen),
    }


def helps(errors: Mapping[str, float]) -> bool:
    """Whether runs that were not fitted to are predicted no worse."""
    return errors["held_out_after"] <= errors["held_out_before"] + SLACK


def _is_held(name: str) -> bool:
    return blake2b(name.encode(), digest_size=4).digest()[0] % HELD_EVERY == 0
