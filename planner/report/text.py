"""Text of a Markdown report: bars of blocks, and values that stay text."""

from typing import Final

BAR: Final = 20


def bar(share: float) -> str:
    """A share between zero and one as blocks."""
    full = min(max(round(share * BAR), 0), BAR)
    return "█" * full + "░" * (BAR - full)


def plain(value: object) -> str:
    """Text that Markdown takes as it stands: no cell ends, no markup, no new lines."""
    text = " ".join(str(value).split())
    for character in ("\\", "|", "<", "`", "*", "_", "["):
        text = text.replace(character, f"\\{character}")
    return text
