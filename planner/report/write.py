"""Reports to files: the ending says which."""

from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.plan_file import write_whole
from planner.report.content import Reported
from planner.report.markdown import markdown_report
from planner.report.page import html_report

ENDINGS: Final = {
    ".html": html_report,
    ".htm": html_report,
    ".md": markdown_report,
    ".markdown": markdown_report,
}


def check_ending(path: Path) -> Path:
    """The path; raises BadInput where its ending names no kind of report."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"--report {str(path)[:200]!r} is neither .html nor .md; end it so")
    return path


def write_report(path: Path, reported: Reported) -> None:
    """Write a report whole or not at all."""
    write_whole(path, ENDINGS[check_ending(path).suffix.lower()](reported), "report", "--report")
