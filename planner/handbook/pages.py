"""Marked blocks of Markdown pages, filled with what the product says today."""

import re
from pathlib import Path
from typing import Final

from planner.handbook.tables import TABLES

BLOCK: Final = re.compile(r"<!-- table: ([a-z-]+) -->\n(.*?)<!-- end -->", re.DOTALL)


def filled(text: str) -> str:
    """A page with every block's table as it is now; raises KeyError for a table that is not known."""
    return BLOCK.sub(lambda found: f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->", text)


def blocks_of(text: str) -> dict[str, str]:
    """Tables of a page as they stand there, by name."""
    return {found[1]: found[2].strip() for found in BLOCK.finditer(text)}


def write_pages(folder: Path) -> tuple[Path, ...]:
    """Fill the blocks of every page below a folder; the pages that have any."""
    written = []
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if BLOCK.search(text):
            path.write_text(filled(text), encoding="utf-8")
            written.append(path)
    return tuple(written)
