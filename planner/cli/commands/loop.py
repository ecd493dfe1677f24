"""`planner loop`: predict, run and compare on this machine."""

from pathlib import Path
from typing import Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option, progress_option
from planner.cli.profiles_folder import measured_in
from planner.cli.progress import end_progress, profile_reporter
from planner.cli.types import Number, WholeNumber


@click.command(
    name="loop", short_help="Profile this machine, run a dozen layouts, compare with their predictions."
)
@click.option("--minutes", type=Number(0, 1440), help="Time for everything; default 5.8.")
@click.option("--steps", type=WholeNumber(2, 1000), help="Optimizer steps of each layout; default 3.")
@click.option("--reuse", is_flag=True, help="Use the profile that there is, measure none.")
@click.option("--small", is_flag=True, help="A tiny model, to try the command.")
@click.option("--layouts", type=WholeNumber(1, 100), help="Run so many of the layouts; default all.")
@click.option("--only", metavar="TEXT", default="", help="Layouts whose kind, engine or strategy holds this.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False), metavar="FOLDER", help="Where the profile goes."
)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Measure the device of this machine, plan for it, run the plans and a dozen other layouts, and put measured steps
    beside the predictions that the profile gives.

    On a processor these are layouts of one, two and four processes; on a GPU recompute and micro-batches of a 1B model,
    an 8B model, a mixture of experts and one with latent attention, the last three cut to fit.

    Steps are shown beside the wall clock and beside processor seconds, with the machine's load: on a busy machine only
    the latter mean much. Exit code 1 where a layout did not run.
    """
    from planner.loop import LoopOptions, run_loop
    from planner.render.loop import show_loop

    defaults = LoopOptions()
    folder = Path(given["output"]) if given["output"] else None
    options = LoopOptions(
        minutes=given["minutes"] or defaults.minutes,
        steps=given["steps"] or defaults.steps,
        reuse=given["reuse"],
        small=given["small"],
        output=folder,
        most=given["layouts"],
        only=given["only"],
    )
    with measured_in(folder):
        found = run_loop(options, profile_reporter(given["progress"], quiet=given["as_json"]))
    end_progress()
    payload = {
        "profile": found.profile.title,
        "folder": str(found.profile.folder),
        "complete": found.profile.manifest.complete,
        "load_before": found.load_before,
        "wall_s": found.wall_s,
        "rows": [row.to_json() for row in found.rows],
        "layers": [row.to_json() for row in found.layers],
        "summary": found.summary.to_json(),
    }
    failed = found.summary.failed > 0
    return Answer(payload, lambda: show_loop(payload), given["as_json"], NO if failed else YES)
