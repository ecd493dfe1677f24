"""Which way is best, and do it: search, evaluate, check and explain parallel training plans.

`from planner import plan, evaluate, check` are the library's three functions (planner/library.py), loaded when used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.library import check as check
    from planner.library import evaluate as evaluate
    from planner.library import plan as plan

__all__ = ["check", "evaluate", "plan"]


def __getattr__(name: str) -> object:
    """One of the three functions."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from planner import library

    return getattr(library, name)
