"""Nearest known names for a mistyped one."""

import difflib
from collections.abc import Iterable
from typing import Final

_WHOLE_WORD: Final = 4
"""Letters from which on a name that others contain is taken to mean those."""


def with_hint(name: str, known: Iterable[str], shown: str = "") -> str:
    """A name (or what is shown for it), followed by `(did you mean X?)` where one is close."""
    hint = did_you_mean(name, known).strip()
    return f"{shown or name} ({hint})" if hint else shown or name


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X? ` for the closest known name, or an empty string."""
    known = list(known)
    inside = [each for each in known if len(name) >= _WHOLE_WORD and name.lower() in each.lower()]
    if inside and name not in known:
        inside.sort(key=lambda each: (not each.startswith(name), len(each)))
        return f"did you mean {' or '.join(inside[:3])}? "
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}? " if close else ""
