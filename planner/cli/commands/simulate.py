"""`planner simulate`: the timeline of one step."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cost_models.specs.strategy import StrategyRequest
from planner.cli.answer import YES, Answer
from planner.cli.inputs import STANDARD_INPUT
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import (
    Question,
    question_from_file,
    question_from_options,
    situation_of,
    strategy_of,
)
from planner.cli.remote import SERVER_OPTIONS, asking, refuse_here, server_of, source_body

if TYPE_CHECKING:
    from planner.simulate import Simulation
    from planner.situation import Situation

MOST_DRAWN: Final = 100_000
"""Operations that a server is asked for: its most."""


@click.command(name="simulate", short_help="Timeline of one step, operation by operation.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@click.option("--trace", metavar="FILE", help="Write the timeline in the Chrome trace format.")
@stacked(SERVER_OPTIONS)
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

    if server_of(given) is not None:
        return _remotely(situation, strategy, given)

    from planner.simulate import simulate, write_trace

    simulation = simulate(situation, strategy)
    written = {}
    if given["trace"]:
        write_trace(Path(given["trace"]), simulation)
        written = {"trace": given["trace"]}
    return _answer((situation, simulation), simulation.to_json() | written, given["as_json"])


def _remotely(situation: "Situation", strategy: StrategyRequest, given: Mapping[str, Any]) -> Answer:
    """The same from a server; of a very long step it sends the first and the last operations."""
    from planner.answered.simulations import simulation

    refuse_here(given, "--trace")
    with asking(given) as client:
        found = client.simulate(source_body(situation, strategy) | {"max_operations": MOST_DRAWN})
    read = simulation(situation, found)
    left_out = found.pop("timeline")["left_out"]
    return _answer((situation, read), found, given["as_json"], left_out)


def _answer(
    simulated: "tuple[Situation, Simulation]", payload: dict[str, Any], as_json: bool, left_out: int = 0
) -> Answer:
    def show() -> None:
        from planner.render import show_simulation

        show_simulation(*simulated)
        if left_out:
            click.echo(f"{left_out:,} operations in the middle of the step were not sent and are not drawn")

    return Answer(payload, show, as_json, YES)
