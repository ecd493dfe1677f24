"""`planner check`: the gate of a CI."""

from typing import TYPE_CHECKING, Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.inputs import read_json, read_text
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import (
    Question,
    question_from_file,
    question_from_options,
)
from planner.cli.settings_file import SETTINGS_OPTIONS, asked
from planner.cli.types import Number, OneOf

if TYPE_CHECKING:
    from planner.check import CheckReport

FORMATS = ("text", "github", "junit", "sarif", "markdown")

_GATE = (
    click.option(
        "--max-memory-fraction", type=Number(0, 1, percent=True), help="Most of the device's memory to use."
    ),
    click.option("--fail-at-risk", is_flag=True, help="Exit 1 also where memory may run out."),
    click.option(
        "--baseline", metavar="FILE", help="A plan file, or the JSON of evaluate or check, to compare with."
    ),
    click.option(
        "--max-slowdown", type=Number(0, 100, percent=True), help="Allowed over the baseline; default 5%."
    ),
    click.option("--output-format", type=OneOf(FORMATS), help="For people, or for a CI; default text."),
)


@click.command(name="check", short_help="Does it fit, and is it no worse than a baseline?")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@stacked(SETTINGS_OPTIONS)
@stacked(_GATE)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Hold one strategy against limits and a baseline.

    The question comes from options, from a plan file, or from a planner.yaml with the keys model, cluster,
    job and strategy; options win. Exit code 0 yes, 1 no, 2 bad input or an illegal strategy.
    """
    if given["as_json"] and given["output_format"] is not None:
        raise click.UsageError("--json and --output-format both say what to print; give one of them")
    base = question_from_file(given["source"]) if given["source"] else Question()
    question = question_from_options(given).over(base)
    name = given["baseline"]
    baseline = read_json(read_text(name, "baseline"), name, "baseline") if name else None
    ask = asked(question, given)

    from planner.check import Limits, check

    stated = {key: given[key] for key in ("max_memory_fraction", "max_slowdown") if given[key] is not None}
    report = check(
        ask.situation, ask.strategy, Limits(fail_at_risk=given["fail_at_risk"], **stated), baseline
    )
    style = given["output_format"] or "text"

    def show() -> None:
        _show(report, style, given["source"] or "planner check")

    return Answer(report.to_json() | ask.to_json(), show, given["as_json"], YES if report.passed else NO)


def _show(report: "CheckReport", style: str, subject: str) -> None:
    if style == "text":
        from planner.render import show_check

        show_check(report)
        return
    from planner.render.check_formats import format_check

    click.echo(format_check(report, style, subject))
