"""`planner checkpoint show`: what a folder of checkpoints holds, and whether it is whole."""

from pathlib import Path
from typing import Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option


@click.group(name="checkpoint", short_help="Checkpoints of a run: steps, layouts, sizes, validity.")
def command() -> None:
    """Look at the checkpoints that `planner run --checkpoint DIR` wrote."""


@command.command(name="show", short_help="List the checkpoints of a folder, or one, and check every byte.")
@click.argument("folder", metavar="DIR")
@click.option("--quick", is_flag=True, help="Look at manifests and sizes alone, not at every byte.")
@json_option
def show(**given: Any) -> Answer:
    """List steps, layouts and sizes of DIR, and whether each checkpoint is as it was written.

    Exit code 1 where none of them is.
    """
    from planner.executor.checkpoint.checks import candidates
    from planner.executor.checkpoint.store import checked
    from planner.executor.checkpoint.table import checkpoint_table

    place = Path(given["folder"])
    if not place.is_dir():
        raise BadInput(
            f"{given['folder'][:200]!r} is no folder; give the DIR of planner run --checkpoint DIR"
        )
    found = candidates(place)
    entries = found if given["quick"] else [checked(entry) for entry in found]
    values = checkpoint_table(entries)

    def display() -> None:
        from planner.render.checkpoint import show_checkpoints

        show_checkpoints(values)

    return Answer(values, display, given["as_json"], YES if values["last_good"] else NO)
