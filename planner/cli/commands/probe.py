"""`planner probe`: the smallest run that shows a plan's fullest stage."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from cost_models.specs.cluster import MAX_DEVICES
from planner.cli.answer import NO, Answer
from planner.cli.inputs import read_json, read_text
from planner.cli.options import json_option, request_options, strategy_option
from planner.cli.plan_input import asked_plan
from planner.cli.question import question_from_options
from planner.cli.types import WholeNumber
from planner.cli.writable import output_path

if TYPE_CHECKING:
    from planner.executor.probing import ProbeRun
    from planner.probe import Probe


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
@click.option("--run", is_flag=True, help="Run it on this machine, and carry what it shows to the plan.")
@click.option("--steps", type=WholeNumber(2, 1_000_000), help="Steps of --run; default 10.")
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
    The plan file that -o writes is what planner run takes; --run runs it at once. Exit code 1 where that run fails.
    """
    if given["run"] and given["measured"]:
        raise BadInput("--run measures the probe and --measured says what was measured; give one of them")
    if given["steps"] and not given["run"]:
        raise BadInput("--steps is for --run; give both")
    output: Path | None = output_path(given["output"])
    asked = asked_plan(given["source"], question_from_options(given))

    from planner.errors import RunFailed
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

    ran: ProbeRun | None = None
    if given["run"]:
        try:
            ran = _run(probe, given)
        except RunFailed as failure:
            sys.stderr.write(f"planner: {failure}\n")
            values = probe_json(probe) | {"failure": failure.to_json()}
            return Answer(values, lambda: None, given["as_json"], NO)
        carried = ran.carried

    def show() -> None:
        from planner.render.probe import show_probe

        show_probe(probe, carried, output)

    values = probe_json(probe, carried) | ({"run": ran.to_json()} if ran is not None else {})
    return Answer(values, show, given["as_json"])


def _run(probe: "Probe", given: Mapping[str, Any]) -> "ProbeRun":
    from planner.cli.progress import step_reporter
    from planner.executor.probing import run_probe
    from planner.executor.request import RunOptions

    options = RunOptions(steps=given["steps"] or 10)
    return run_probe(probe, options, step_reporter(None, quiet=given["as_json"]))
