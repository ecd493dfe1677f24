"""`planner simulate`: the timeline of one step."""

from pathlib import Path
from typing import Any

import click

from planner.cli.answer import YES, Answer
from planner.cli.inputs import STANDARD_INPUT
from planner.cli.options import json_option, progress_option, request_options, strategy_option
from planner.cli.question import (
    Question,
    question_from_file,
    question_from_options,
    situation_of,
    strategy_of,
)


@click.command(name="simulate", short_help="Timeline of one step, operation by operation.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@click.option("--trace", metavar="FILE", help="Write the timeline in the Chrome trace format.")
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Simulate one step of a plan, or of a model, cluster, job and strategy as for evaluate.

    Shows when every pipeline rank computes, sends and waits; the step is the one that evaluate predicts.
    """
    if given["trace"] == STANDARD_INPUT:
        raise click.UsageError("--trace - is not a file, and standard output has the answer; give a path")
    base = question_from_file(given["source"]) if given["source"] else Question()
    question = question_from_options(given).over(base)
    strategy = strategy_of(question)
    situation = situation_of(question)

    from planner.simulate import simulate, write_trace

    simulation = simulate(situation, strategy)
    written = {}
    if given["trace"]:
        write_trace(Path(given["trace"]), simulation)
        written = {"trace": given["trace"]}

    def show() -> None:
        from planner.render import show_simulation

        show_simulation(situation, simulation)

    return Answer(simulation.to_json() | written, show, given["as_json"], YES)
