"""The table of every layout held against one process.

`python -m tests.planner.executor.equality_document docs/executor_equality.md` runs every layout and writes the
document; with `--only TEXT` it runs those whose row holds the text, and those that have no row yet.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from planner.executor.verification import LIMITS
from tests.planner.executor import divided, equality
from tests.planner.executor.adapters import layouts as adapted
from tests.planner.executor.equality import Layout, compare_all
from tests.planner.executor.ranks import RankError

AT_ONCE: Final = 6
"""Layouts of as many processes that are run one after the other in the same ones."""
HEADER: Final = (
    "| layout | processes | strategy | loss | gradients | parameters | |",
    "|---|--:|---|--:|--:|--:|---|",
)
EQUAL: Final = "| equal |"


@dataclass(frozen=True)
class Section:
    """One table."""

    title: str
    text: str
    layouts: tuple[Layout, ...]


def sections() -> tuple[Section, ...]:
    """All of them."""
    return (
        Section(
            "Schedules, shardings and tensor parallel degrees",
            "A Llama with five blocks.",
            tuple(equality.all_layouts()),
        ),
        Section(
            "Experts and positions",
            "Dense: a Llama of three blocks. Routed: a DeepSeek-V3 of one dense and two routed blocks, latent "
            "attention, eight experts in two groups and a shared one; under ZeRO-3 experts are cut at capacity 1.25 "
            "and balanced by an auxiliary loss and a moving correction, else nothing is dropped. One process replays "
            "the partition of the tokens.",
            tuple(divided.all_layouts()),
        ),
        Section(
            "Adapters",
            "LoRA beside frozen weights, both of its matrices drawn: gradients of adapters alone.",
            tuple(adapted.all_layouts()),
        ),
    )


def start(layout: Layout) -> str:
    """How a layout's row begins, which tells it from all others."""
    return f"| {layout.name} | {layout.devices} | {layout.engine}: `{layout.strategy}` |"


def rows_of(layouts: Sequence[Layout]) -> Iterator[tuple[Layout, str]]:
    """Run the layouts, several at a time where they need as many processes; a row of a table each."""
    by_world: dict[int, list[Layout]] = {}
    for layout in layouts:
        by_world.setdefault(layout.devices, []).append(layout)
    for _, alike in sorted(by_world.items()):
        for first in range(0, len(alike), AT_ONCE):
            few = alike[first : first + AT_ONCE]
            yield from zip(few, _rows(few), strict=True)


def _rows(layouts: Sequence[Layout]) -> list[str]:
    """Rows of layouts in the same processes; each in its own where one of them fails."""
    try:
        found = compare_all([layout.order() for layout in layouts], layouts[0].devices)
    except RankError as error:
        if len(layouts) > 1:
            return [row for layout in layouts for row in _rows([layout])]
        return [f"{start(layouts[0])} | | | FAILS: {str(error).splitlines()[-1][:120]} |"]
    rows = []
    for layout, each in zip(layouts, found, strict=True):
        verdict = "equal" if each.within_limits() else "DIFFERS"
        numbers = f"{each.loss:.1e} | {each.gradients:.1e} | {each.parameters:.1e}"
        rows.append(f"{start(layout)} {numbers} | {verdict} |")
    return rows


def document(parts: Sequence[Section], rows: Mapping[str, str]) -> Iterator[str]:
    """Markdown of all tables, from rows by their beginning."""
    limits = ", ".join(f"{name} {limit:.0e}" for name, limit in LIMITS.items())
    yield "# Layouts held against one process"
    yield ""
    yield (
        "Largest relative differences over five AdamW steps in fp32, clipped. Written by "
        "`python -m tests.planner.executor.equality_document docs/executor_equality.md`, row by row; `--only TEXT` "
        f"runs again those whose row holds the text. Limits: {limits}."
    )
    for part in parts:
        yield f"\n## {part.title}\n\n{part.text}\n"
        yield from HEADER
        yield from (rows[start(layout)] for layout in part.layouts if start(layout) in rows)


def written_rows(text: str) -> dict[str, str]:
    """Rows of a document by their beginning."""
    found = {}
    for line in text.splitlines():
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) > 4 and "`" in cells[2]:
            found[" | ".join(cells[:3]) + " |"] = line
    return found


def main() -> None:
    """Run what the command line asks for; the document is written anew after every few layouts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("document", type=Path)
    parser.add_argument("--only", default="", help="text of the rows that are run again")
    arguments = parser.parse_args()
    path: Path = arguments.document
    before = written_rows(path.read_text(encoding="utf-8")) if path.exists() and arguments.only else {}
    parts = sections()
    every = [layout for part in parts for layout in part.layouts]
    asked = [each for each in every if start(each) not in before or arguments.only in start(each)]
    rows = {start(each): before[start(each)] for each in every if start(each) in before}
    for layout, row in rows_of(asked):
        rows[start(layout)] = row
        path.write_text("\n".join(document(parts, rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
