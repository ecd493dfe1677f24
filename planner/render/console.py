"""The console, tables and bars that every view shares."""

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

PIPED_WIDTH: Final = 110
MAX_WIDTH: Final = 130
BAR_WIDTH: Final = 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


class _PipedConsole(Console):
    """A console that leaves a closed pipe to the command line, whose exit code for it is not 1, "the answer is no"."""

    def on_broken_pipe(self) -> None:
        """Raise what was caught; rich itself would exit with 1."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def make_console() -> Console:
    """A console on standard output; colours on a terminal without NO_COLOR, a fixed width in a pipe."""
    console = _PipedConsole(highlight=False, soft_wrap=False, emoji=False)
    console.width = min(console.width, MAX_WIDTH) if sys.stdout.isatty() else PIPED_WIDTH
    return console


def bar(share: float, width: int = BAR_WIDTH, style: str = "cyan") -> Text:
    """A horizontal bar of `share` of the width, in eighths of a cell where the output can write them."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    if not _writes_blocks():
        return Text("#" * round(eighths / 8), style)
    full, rest = divmod(eighths, 8)
    return Text("█" * full + (_EIGHTHS[rest] if rest else ""), style)


def table(*columns: str, right: Sequence[str] = (), header: bool = True) -> Table:
    """A table without frames; columns named in `right` are right-aligned."""
    made = Table(box=None, pad_edge=False, show_header=header)
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left", header_style="dim", overflow="fold"
        )
    return made


def print_table(console: Console, made: Table, title: str = "") -> None:
    """A blank line, the title on a line of its own, the table."""
    console.print()
    if title:
        console.print(f"[bold]{title}[/bold]")
    console.print(made)


def plain(text: object) -> str:
    """Text from outside, with rich's markup and characters that steer a terminal made harmless."""
    shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in str(text))
    return escape(shown.encode("utf-8", "replace").decode("utf-8"))


def _writes_blocks() -> bool:
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return encoding.startswith("utf")


def show_report(console: Console, report: Path | None) -> None:
    """Where the report stands, if one was written."""
    if report is not None:
        console.print(f"[dim]report:[/dim] {plain(report)}")
