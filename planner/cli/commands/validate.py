"""`planner validate`: predictions against measured runs."""

from pathlib import Path
from typing import Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import Answer
from planner.cli.options import json_option, progress_option


@click.command(name="validate", short_help="Predictions against measured runs.")
@click.argument("runs", metavar="RUNS.csv")
@click.option("--plot", metavar="FILE", help="Draw predicted against measured: .svg, .png or .pdf.")
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Predict every run of a table and compare with what was measured; a row that is skipped says why."""
    path = Path(given["runs"])
    if not path.is_file():
        raise BadInput(f"runs {given['runs'][:200]!r} is not a file; give a CSV file of runs")

    from planner.cli.progress import end_progress, row_reporter
    from planner.validation import validate_file

    try:
        report = validate_file(path, row_reporter(given["progress"]))
    finally:
        end_progress()
    if given["plot"] is not None:
        from planner.validation.figures import plot_report

        plot_report(report, Path(given["plot"]))

    def show() -> None:
        from planner.render import show_validation

        show_validation(report.to_json())

    return Answer(report.to_json(), show, given["as_json"])
