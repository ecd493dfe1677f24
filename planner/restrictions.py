"""Pins and bans: what a user fixes, allows and forbids, checked by name and value before the search.

A pin names one value (`tp=8`), several (`mbs=1,2,4`) or a range with both ends included (`tp=1..8`, `dp=16..`); a ban
the same. A single pinned value is tried even where the search would not have looked.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cost_models.errors import BadInput
from cost_models.mesh import SCHEDULES
from cost_models.operators.context import FORMS, is_kind
from cost_models.schedule.names import ScheduleName
from cost_models.specs.offload import parse_act_offload, parse_offload
from cost_models.specs.recompute import ALL_LAYERS, Recompute, parse_recompute
from cost_models.specs.strategy import DEFAULT_ORDER, ORDER_AXES
from cost_models.suggest import did_you_mean

_WHOLE: Final = re.compile(r"[0-9]{1,9}")
MAX_VALUE: Final = 999_999_999
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
    "dp_shard",
    "zero",
    "mbs",
    "sp",
    "schedule",
    "recompute",
    "cp_kind",
    "order",
    "offload",
    "act_offload",
    "groups",
)
WORDS: Final = ("cp_kind", "order", "offload", "act_offload", "groups")
"""Axes whose values are words."""
ALLOWED: Final = "allowed"
"""The word for every value of offload, act_offload or cp_kind that the engine has; that of offload speaks for
act_offload too."""


@dataclass(frozen=True, slots=True)
class Values:
    """Whole numbers as closed ranges; a single value is a range of one."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, value: int) -> bool:
        return any(low <= value <= high for low, high in self.ranges)

    @property
    def single(self) -> tuple[int, ...]:
        """Values that were named one by one."""
        return tuple(low for low, high in self.ranges if low == high)


@dataclass(frozen=True, slots=True)
class Restrictions:
    """Values that each axis may and may not have; values as integers, recompute parsed."""

    pins: Mapping[str, Values] = field(default_factory=dict)
    bans: Mapping[str, Values] = field(default_factory=dict)
    recompute: Recompute | None = None
    banned_recompute: frozenset[str] = frozenset()
    pinned_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    banned_words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def words(self, key: str, usual: Iterable[str], every: Iterable[str] = ()) -> tuple[str, ...]:
        """The allowed values of an axis of words: the pinned ones, or the usual ones, without the banned ones.

        A pin to `allowed` stands for `every` one.
        """
        pinned = self.pinned_words.get(key)
        if pinned is None and key == "act_offload" and ALLOWED in self.pinned_words.get("offload", ()):
            pinned = (ALLOWED,)
        found = tuple(usual) if pinned is None else pinned
        found = tuple(every) if ALLOWED in found else found
        return tuple(word for word in found if not self._bans_word(key, word))

    def _bans_word(self, key: str, word: str) -> bool:
        """Whether a word is banned, or all of its kind: `optimizer` bans every share, `blocks` every number."""
        banned = self.banned_words.get(key, ())
        return word in banned or word.partition(":")[0] in banned

    def takes_text(self, key: str, text: str) -> bool:
        """Whether an axis of words may have a value."""
        pinned = self.pinned_words.get(key)
        return (pinned is None or text in pinned or ALLOWED in pinned) and not self._bans_word(key, text)

    def takes(self, key: str, value: int) -> bool:
        """Whether an axis may have a value."""
        pinned = key not in self.pins or value in self.pins[key]
        return pinned and not (key in self.bans and value in self.bans[key])

    def allowed(self, key: str, usual: Iterable[int], wide: Iterable[int] = ()) -> tuple[int, ...]:
        """The allowed values of an axis, rising: of the usual ones, or where it is pinned those named one by one and
        of `wide` those in a named range."""
        found = set(usual)
        if key in self.pins:
            found |= {*wide, *self.pins[key].single}
        return tuple(value for value in sorted(found) if self.takes(key, value))

    def scopes(
        self, values: tuple[tuple[str, ...], ...], full_recompute: bool = False
    ) -> tuple[tuple[str, ...], ...]:
        """Recompute bases to try; base () is none or, where the engine has it, full recompute."""
        if self.recompute is not None:
            return (self.recompute.scopes,)
        bare = "none" not in self.banned_recompute or (full_recompute and self.needs_full)
        return tuple(s for s in values if (self.takes_recompute(Recompute(s)) if s else bare))

    def takes_recompute(self, recompute: Recompute) -> bool:
        """Whether pins and bans leave a recompute; banned scopes ban all that recompute them together."""
        if self.recompute is not None:
            return recompute == self.recompute
        scopes = set(recompute.scopes)
        parts = (set(ban.partition(":")[2].split("+")) for ban in self.banned_recompute if ":" in ban)
        return recompute_kind(recompute) not in self.banned_recompute and not any(
            banned <= scopes for banned in parts
        )

    @property
    def may_recompute_fully(self) -> bool:
        """Whether the number of fully recomputed layers is still free."""
        return self.recompute is None and "full" not in self.banned_recompute

    @property
    def needs_full(self) -> bool:
        """Whether meshes without selective recompute must recompute at least one layer in full."""
        return self.may_recompute_fully and "none" in self.banned_recompute

    @property
    def all_recomputed(self) -> bool:
        """Whether recompute=full is pinned."""
        return self.recompute is not None and self.recompute.full == ALL_LAYERS


def recompute_kind(recompute: Recompute) -> str:
    """`none`, `selective` or `full`, as bans name them."""
    full = any(recompute.full) if isinstance(recompute.full, tuple) else recompute.full
    return "selective" if recompute.scopes else "full" if full else "none"


def read_restrictions(pins: Mapping[str, object], bans: Iterable[str]) -> Restrictions:
    """Pins and bans from the search request; raises BadInput for unknown keys and values."""
    apart = ("recompute", *WORDS)
    numbers = {key: _values(key, value, "/search/pins") for key, value in pins.items() if key not in apart}
    words = {key: _words(key, str(pins[key]), "/search/pins") for key in WORDS if key in pins}
    banned_words: dict[str, tuple[str, ...]] = {}
    several = _kinds_left_out(str(pins["recompute"])) if "recompute" in pins else set[str]()
    recompute = _pinned_recompute(str(pins["recompute"])) if "recompute" in pins and not several else None
    banned: dict[str, Values] = {}
    banned_recompute = set(several)
    for ban in bans:
        key, _, value = ban.partition("=")
        if key == "recompute":
            banned_recompute |= {_recompute_ban(part) for part in value.split(",")}
        elif key in WORDS:
            banned_words[key] = banned_words.get(key, ()) + _words(key, value, "/search/bans")
        else:
            more = _values(key, value, "/search/bans").ranges
            banned[key] = Values((*(banned[key].ranges if key in banned else ()), *more))
    recompute = _recompute_left(recompute, banned_recompute)
    _check_something_left(numbers, banned)
    given = Restrictions(numbers, banned, recompute, frozenset(banned_recompute), words, banned_words)
    for key, pinned in words.items():
        if ALLOWED not in pinned and not given.words(key, pinned):
            raise BadInput(
                f"{key}={','.join(pinned)} is pinned and banned; drop one of the two", pointer="/search/bans"
            )
    return given


def check_scopes(given: Restrictions, known: tuple[str, ...], model: str, engine: str) -> None:
    """Raises BadInput where a pinned recompute names a scope that the engine does not recompute apart in the model."""
    scopes = given.recompute.scopes if given.recompute is not None else ()
    for scope in scopes:
        if scope not in known:
            raise BadInput(
                f"recompute scope {scope!r:.60} is none of {model}'s under {engine}; {did_you_mean(scope, known)}"
                + (f"use {', '.join(known)}" if known else "pin recompute=none or recompute=full"),
                pointer="/search/pins/recompute",
                allowed=known,
            )


def _check_something_left(pins: Mapping[str, Values], bans: Mapping[str, Values]) -> None:
    """Raises BadInput where every value that was named one by one is banned too."""
    for key, values in pins.items():
        if values.single and len(values.single) == len(values.ranges) and key in bans:
            left = [value for value in values.single if value not in bans[key]]
            if not left:
                named = ", ".join(shown_value(key, value) for value in values.single)
                raise BadInput(
                    f"{key}={named} is pinned and banned; drop one of the two", pointer="/search/bans"
                )


def _words(key: str, text: str, pointer: str) -> tuple[str, ...]:
    """The words that a pin or ban names, in their one spelling."""
    return tuple(_word(key, part.strip().lower(), pointer) for part in text.split(","))


def _word(key: str, text: str, pointer: str) -> str:
    if text == ALLOWED and key in ("offload", "act_offload", "cp_kind") and pointer == "/search/pins":
        return text
    if key == "offload":
        return parse_offload(text).text()
    if key == "act_offload":
        return parse_act_offload(text).text()
    if key == "groups" and "*" in text:
        detail = (
            f"groups={text:.60} names ranks; name the groups alone, as in groups=a100+h100, and pin pp beside"
        )
        raise BadInput(detail, pointer=pointer)
    if key == "cp_kind" and not is_kind(text) and not (text == "hierarchical" and pointer == "/search/bans"):
        raise BadInput(
            f"unknown cp_kind {text:.60}; {did_you_mean(text, FORMS)}use {', '.join(FORMS)}",
            pointer=pointer,
            allowed=FORMS,
        )
    if key == "order" and (set(text.split("-")) != ORDER_AXES or len(text.split("-")) != len(ORDER_AXES)):
        usual = "-".join(DEFAULT_ORDER)
        raise BadInput(
            f"order={text:.60} does not name each axis once; write for example {usual}", pointer=pointer
        )
    return text


def shown_value(key: str, value: int) -> str:
    """A number of an axis as people write it."""
    if key == "sp":
        return "true" if value else "false"
    return SCHEDULES[value].value if key == "schedule" else str(value)


def _kinds_left_out(text: str) -> set[str]:
    """The kinds of recompute that a pin of several (`none,full`) leaves out; none where it names one."""
    kinds = {part.strip() for part in text.split(",")}
    return set(RECOMPUTE_KINDS) - kinds if len(kinds) > 1 and kinds <= set(RECOMPUTE_KINDS) else set()


def _pinned_recompute(text: str) -> Recompute:
    recompute = parse_recompute(text)
    if recompute.full not in (0, ALL_LAYERS):
        raise BadInput(
            f"recompute={text:.60} cannot be pinned; pin none, selective, selective:scopes, full or several kinds "
            "(none,full), and evaluate full:K as a strategy",
            pointer="/search/pins/recompute",
        )
    return recompute


def _recompute_left(pinned: Recompute | None, banned: set[str]) -> Recompute | None:
    """What is fixed once the bans have spoken; raises BadInput where they leave nothing."""
    kind = None if pinned is None else recompute_kind(pinned)
    if kind in banned:
        raise BadInput(f"recompute={kind} is pinned and banned; drop one of the two", pointer="/search/bans")
    if banned >= set(RECOMPUTE_KINDS):
        raise BadInput("every kind of recompute is banned; leave one", pointer="/search/bans")
    return pinned


def _recompute_ban(value: str) -> str:
    """A kind, or `selective:scopes` in its one spelling."""
    value = value.strip().lower()
    kind, _, scopes = value.partition(":")
    if kind == "selective" and scopes:
        return Recompute(parse_recompute(value).scopes).text(default_scopes=())
    if value not in RECOMPUTE_KINDS:
        raise BadInput(
            f"recompute={value:.60} cannot be banned; ban none, selective, selective:scopes or full",
            pointer="/search/bans",
            allowed=RECOMPUTE_KINDS,
        )
    return value


def _values(key: str, value: object, pointer: str) -> Values:
    """The values of an axis that a pin or ban names."""
    if key not in SEARCHED:
        known = ", ".join(SEARCHED)
        raise BadInput(
            f"unknown search key {key:.60}; {did_you_mean(key, SEARCHED)}known: {known}",
            pointer=pointer,
            allowed=SEARCHED,
        )
    text = str(value).strip().lower()
    return Values(tuple(_range(key, part.strip(), pointer) for part in text.split(",")))


def _range(key: str, text: str, pointer: str) -> tuple[int, int]:
    """One value, or `low..high` with either end left out, as a closed range."""
    low_text, dots, high_text = text.partition("..")
    if not dots or key in ("schedule", "sp"):
        value = _number(key, text, pointer)
        return value, value
    low = _number(key, low_text, pointer) if low_text else 0
    high = _number(key, high_text, pointer) if high_text else MAX_VALUE
    if low > high or not (low_text or high_text):
        raise BadInput(
            f"{key}={text:.60} is an empty range; write the lower end first, as in {key}=1..8",
            pointer=pointer,
        )
    return low, high


def _number(key: str, text: str, pointer: str) -> int:
    """An axis value as an integer."""
    if key == "schedule":
        names = tuple(s.value for s in ScheduleName)
        if text not in names:
            raise BadInput(
                f"unknown schedule {text:.60}; {did_you_mean(text, names)}use {', '.join(names)}",
                pointer=pointer,
                allowed=names,
            )
        return SCHEDULES.index(ScheduleName(text))
    if key == "sp":
        if text not in ("true", "false", "0", "1"):
            raise BadInput(f"sp={text:.60} is not true or false; use sp=true or sp=false", pointer=pointer)
        return int(text in ("true", "1"))
    low = 0 if key == "zero" else 1
    if not _WHOLE.fullmatch(text) or int(text) < low:
        raise BadInput(
            f"{key}={text:.60} is not a whole number from {low} to {MAX_VALUE:,} (or a range such as {key}=1..8); "
            f"use for example {key}=2",
            pointer=pointer,
        )
    return int(text)
