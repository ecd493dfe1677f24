"""The option --report: the views of an answer as one file beside what is printed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from planner.answers import Progress
from planner.cli.writable import output_path

report_option = click.option(
    "--report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write a report: every view as one page (.html), or tables for a pull request (.md).",
)


def report_path(name: str | None) -> Path | None:
    """The file of the report, refused before the work where it cannot be written or its ending says nothing."""
    path = output_path(name, "--report", "plan.html")
    if path is not None:
        from planner.report import check_ending

        check_ending(path)
    return path


class Recorder:
    """Passes the progress of a search on, and keeps what a report shows of it."""

    def __init__(self, report: Callable[[Progress], None] | None) -> None:
        self._report = report
        self._started = time.monotonic()
        self._events: list[dict[str, Any]] = []

    def __call__(self, progress: Progress) -> None:
        """Take one line of progress."""
        from planner.report.history import event_of

        if progress.meshes_total:
            self._events.append(event_of(progress, time.monotonic() - self._started))
        if self._report is not None:
            self._report(progress)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Those in which something moved."""
        from planner.report.history import thinned

        return thinned(self._events)
