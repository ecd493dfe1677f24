"""Which activations are dropped and computed again: none, selective (named scopes), full for the first layers."""

from dataclasses import dataclass

from cost_models.errors import IllegalStrategy, Violation

ALL_LAYERS = -1


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
    kind, _, detail = head.partition(":")
    try:
        if kind == "none" and not detail and not slash:
            return Recompute()
        if kind == "selective" and not slash:
            return Recompute(scopes=tuple(detail.split("+")) if detail else default_scopes)
        if kind == "full":
            scopes = parse_recompute(rest, default_scopes).scopes if slash else ()
            return Recompute(scopes, _full_count(detail) if detail else ALL_LAYERS)
    except ValueError:
        pass
    raise IllegalStrategy(
        (
            Violation(
                "recompute_syntax",
                f"recompute={text!r:.80} is not known",
                ("none", "selective", "selective:core_attn+mlp", "full", "full:K", "full:K0+K1+…"),
            ),
        )
    )


def _full_count(detail: str) -> int | tuple[int, ...]:
    counts = tuple(int(part) for part in detail.split("+"))
    if any(k < 0 for k in counts):
        raise ValueError(detail)
    return counts[0] if len(counts) == 1 else counts
