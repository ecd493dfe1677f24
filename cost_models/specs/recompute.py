"""Which activations are dropped and computed again: none, selective (named scopes), full for the first layers."""

import re
from dataclasses import dataclass
from typing import Final

from cost_models.errors import IllegalStrategy, Violation

ALL_LAYERS = -1
MAX_SCOPES: Final = 64
_COUNT: Final = re.compile(r"[0-9]{1,18}")
_FORMS: Final = ("none", "selective", "selective:core_attn+mlp", "full", "full:K", "full:K0+K1+…")


@dataclass(frozen=True, slots=True)
class Recompute:
    """Base scopes recomputed in every block, and how many first blocks of each virtual stage are recomputed in full.

    `full` is one number for all stages (ALL_LAYERS for every block), or one per virtual stage. Text forms: `none`,
    `selective`, `selective:core_attn+mlp`, `full`, `full:3`, `full:4+3+2+0`, and `full:3/selective` where the other
    blocks are recomputed selectively.
    """

    scopes: tuple[str, ...] = ()
    full: int | tuple[int, ...] = 0

    def full_layers(self, stages: tuple[int, ...]) -> tuple[int, ...]:
        """Fully recomputed blocks of each virtual stage, at most all of them."""
        if isinstance(self.full, tuple):
            return tuple(min(k, n) for k, n in zip(self.full, stages, strict=True))
        return tuple(n if self.full == ALL_LAYERS else min(self.full, n) for n in stages)

    def text(self, default_scopes: tuple[str, ...] = ("core_attn",)) -> str:
        """The contract's text form."""
        base = ""
        if self.scopes:
            base = "selective" if self.scopes == default_scopes else f"selective:{'+'.join(self.scopes)}"
        if self.full in (0, ()):
            return base or "none"
        if self.full == ALL_LAYERS:
            return "full"
        count = "+".join(str(k) for k in self.full) if isinstance(self.full, tuple) else str(self.full)
        return f"full:{count}/{base}" if base else f"full:{count}"


def parse_recompute(text: str, default_scopes: tuple[str, ...] = ("core_attn",)) -> Recompute:
    """A Recompute from its text form; raises IllegalStrategy with the legal forms."""
    head, slash, rest = text.strip().partition("/")
    kind, colon, detail = head.partition(":")
    count = _full_count(detail) if colon else ALL_LAYERS
    if kind == "full" and count is not None:
        scopes = _base_scopes(rest, default_scopes) if slash else ()
        if scopes is not None:
            return Recompute(scopes, count)
    scopes = None if slash else _base_scopes(head, default_scopes)
    if scopes is not None:
        return Recompute(scopes)
    raise IllegalStrategy((Violation("recompute_syntax", f"recompute={text!r:.80} is not known", _FORMS),))


def _base_scopes(text: str, default_scopes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Scopes of `none`, `selective` or `selective:a+b`, each once; None for any other text."""
    if text in ("none", "selective"):
        return () if text == "none" else default_scopes
    kind, colon, detail = text.partition(":")
    scopes = tuple(detail.split("+"))
    is_list = kind == "selective" and colon and all(scopes) and len(scopes) <= MAX_SCOPES
    return scopes if is_list and len(set(scopes)) == len(scopes) else None


def _full_count(detail: str) -> int | tuple[int, ...] | None:
    """Layers of every stage, or of each; None where a count is no whole number."""
    parts = detail.split("+")
    if not all(_COUNT.fullmatch(part) for part in parts):
        return None
    counts = tuple(int(part) for part in parts)
    return counts[0] if len(counts) == 1 else counts
