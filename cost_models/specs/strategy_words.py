"""Strategies as people read them: `TP8 PP4 ZeRO-1 mbs 1 interleaved recompute none` becomes `tp=8,pp=4,…`."""

import re
from collections.abc import Iterator
from typing import Final

from cost_models.schedule.names import ScheduleName

_DEGREE: Final = re.compile(r"(tp|cp|pp|vpp|ep|etp|dp)([0-9]{1,9})", re.IGNORECASE)
_ZERO: Final = re.compile(r"zero-?([0-3])", re.IGNORECASE)
_CHUNKS: Final = re.compile(r"[\u00d7x]([0-9]{1,9})")
_SCHEDULES: Final = tuple(schedule.value for schedule in ScheduleName)
_RECOMPUTE: Final = re.compile(r"none|full(:\d+)?|selective(:[a-z_+]+)?")
_FOLLOWED: Final = {"mbs": "mbs", "recompute": "recompute", "offload": "offload", "on": "groups"}
"""Words whose value is the next word."""


def as_pairs(text: str) -> str:
    """`key=value,…` of a strategy in words, as the terminal and the page print it; any other text as it came."""
    parts = [part for part in text.split(",") if part.strip()]
    if all("=" in part and len(part.split("=")) == 2 for part in parts):
        return text
    words = text.replace(",", " ").split()
    if words[:2] in (["1", "device"], ["one", "device"]):
        words = words[2:]
    found = list(_pairs(iter(words)))
    return text if None in found else ",".join(pair for pair in found if pair)


def _pairs(words: Iterator[str]) -> Iterator[str | None]:
    """One `key=value` a word or two; None for what says nothing."""
    for word in words:
        low = word.lower()
        if "=" in word:
            yield word
        elif found := _DEGREE.fullmatch(word):
            yield f"{found[1].lower()}={found[2]}"
        elif found := _ZERO.fullmatch(word):
            yield f"zero={found[1]}"
        elif found := _CHUNKS.fullmatch(word):
            yield f"vpp={found[1]}"
        elif low in _SCHEDULES:
            yield f"schedule={low}"
        elif low in _FOLLOWED or low == "act_offload":
            value = next(words, None)
            yield None if value is None else f"{_FOLLOWED.get(low, low)}={value}"
        else:
            yield f"recompute={low}" if _RECOMPUTE.fullmatch(low) else None
