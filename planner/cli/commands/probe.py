"""`planner probe`: the smallest run that shows a plan's fullest stage."""

from pathlib import Path
from typing import Any

import click

from cost_models.specs.cluster import MAX_DEVICES
from planner.cli.answer import Answer
from planner.cli.inputs import read_json, read_text
from planner.cli.options import json_option, request_options, strategy_option
from planner.cli.plan_input import asked_plan
from planner.cli.question import question_from_options
from planner.cli.types import WholeNumber
from planner.cli.writable import output_path


@click.command(name="probe", short_help="The smallest run that shows the plan's fullest stage.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@click.option(
    "--devices", type=WholeNumber(1, MAX_DEVICES), help="Devices there are for the probe; default 8."
)
@click.option(
    "--measured", metavar="RUN.json", help="JSON of planner run of the probe, to carry back to the plan."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    metavar="PROBE.json",
    help="Write the probe as a plan file.",
)
@json_option
def command(**given: Any) -> Answer:
    """Derive a small run whose devices hold what the plan's fullest stage holds, with its prediction.

    It keeps tensor parallelism, micro-batch, sequence and local shards, with fewer layers, pipeline ranks and replicas.
    The plan file that -o writes is what planner run takes.
    """
    output: Path | None = output_path(given["output"])
    asked = asked_plan(given["source"], question_from_options(given))

    from planner.evaluation import evaluate
    from planner.probe import carry, derive_probe, probe_json, probe_result
    from planner.request import SearchRequest

    plan = evaluate(asked.situation, asked.strategy)
    probe = derive_probe(asked.situation, plan, given["devices"] or 8)
    name = given["measured"]
    carried = carry(probe, read_json(read_text(name, "run"), name, "run")) if name else None
    if output is not None:
        from planner.plan_file import plan_document, write_plan

        write_plan(output, plan_document(probe.situation, SearchRequest(), probe_result(probe)))

    def show() -> None:
        from planner.render.probe import show_probe

        show_probe(probe, carried, output)

    return Answer(probe_json(probe, carried), show, given["as_json"])
