"""`planner calibrate`: constants of your own cluster from your own runs."""

from pathlib import Path
from typing import Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option


@click.command(name="calibrate", short_help="Fit a few ratios to your own measured runs.")
@click.argument("runs", metavar="RUNS.csv|RUN.json...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FOLDER", required=True, help="A copy of the profiles to write.")
@json_option
def command(**given: Any) -> Answer:
    """Fit to measured runs (tables, or reports of planner run --json), and write a copy of the profiles with the
    result where runs that were held out are predicted no worse. Use it with PARALLELISM_PLANNER_PROFILES=FOLDER."""
    paths = [Path(name) for name in given["runs"]]
    for path in paths:
        if not path.is_file():
            raise BadInput(
                f"runs {str(path)[:200]!r} is not a file; give CSV files of runs, or JSON of planner run"
            )

    from planner.validation.calibrate.own import calibrate_own, write_own
    from planner.validation.calibrate.reports import is_report, outcomes_of_reports
    from planner.validation.predict import outcome_of
    from planner.validation.rows import read_runs

    outcomes = [
        outcome
        for path in paths
        for outcome in (
            outcomes_of_reports(path) if is_report(path) else [outcome_of(run) for run in read_runs(path)]
        )
    ]
    found = calibrate_own(outcomes)
    if found.helps:
        write_own(found, Path(given["output"]), paths)

    def show() -> None:
        from planner.render import show_calibration

        show_calibration(found.to_json(), given["output"])

    return Answer(found.to_json(), show, given["as_json"], YES if found.helps else NO)
