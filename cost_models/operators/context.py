"""Kinds of context parallelism: how attention crosses the ranks that hold parts of a sequence."""

import re
from typing import Final

KINDS: Final = ("ring", "allgather", "ulysses")
FORMS: Final = (*KINDS, "hierarchical:N")
PATTERN: Final = r"^(ring|allgather|ulysses|hierarchical:[1-9][0-9]{0,3})$"
_HIERARCHICAL: Final = re.compile(r"hierarchical:([1-9][0-9]{0,3})")


def is_kind(text: str) -> bool:
    """Whether a text names a kind: one of KINDS, or `hierarchical:N`."""
    return text in KINDS or inner_ranks(text) > 0


def inner_ranks(cp_kind: str) -> int:
    """Neighbouring ranks that exchange heads inside a ring of such groups (`hierarchical:N`); 0 for other kinds."""
    match = _HIERARCHICAL.fullmatch(cp_kind)
    return int(match[1]) if match else 0
