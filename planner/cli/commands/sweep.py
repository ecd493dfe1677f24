"""`planner sweep`: many models, clusters and jobs on every core, resumable."""

from pathlib import Path
from typing import Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.inputs import STANDARD_INPUT
from planner.cli.options import json_option, progress_option
from planner.cli.types import WholeNumber


@click.command(name="sweep", short_help="Many models, clusters and jobs at once, resumable.")
@click.argument("file", metavar="FILE")
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder of the results; default FILE without its suffix and with -results.",
)
@click.option("--jobs", type=WholeNumber(1, 1024), help="Processes; default every core.")
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Plan every combination of a YAML, TOML or JSON FILE; what the folder holds already is not asked again.

    Exit code 1 if a combination has no plan; its row says why.
    """
    from planner.cli.progress import end_progress, sweep_reporter
    from planner.cli.sweep_file import sweep_from_file
    from planner.sweep import Store, run_sweep, sweep_items

    items = list(sweep_items(sweep_from_file(given["file"])))
    folder = Path(given["output"] or _default_folder(given["file"]))
    with Store(folder) as store:
        try:
            report = run_sweep(items, store, given["jobs"] or 0, sweep_reporter(given["progress"]))
        except KeyboardInterrupt:
            done = sum(store.has(item.key) for item in items)
            click.echo(
                f"planner: {done} of {len(items)} rows are in {folder}; the same command goes on from there",
                err=True,
            )
            raise
        finally:
            end_progress()

    def show() -> None:
        from planner.render.sweep import show_sweep

        show_sweep(report)

    return Answer(report.to_json(), show, given["as_json"], YES if report.num_planned == len(items) else NO)


def _default_folder(name: str) -> str:
    return "sweep-results" if name == STANDARD_INPUT else str(Path(name).with_suffix("")) + "-results"
