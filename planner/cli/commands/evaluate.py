"""`planner evaluate`: what one strategy costs."""

from typing import Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import question_from_options
from planner.cli.reporting import report_option, report_path
from planner.cli.settings_file import SETTINGS_OPTIONS, asked


@click.command(name="evaluate", short_help="Step time and memory of one strategy.")
@request_options
@strategy_option
@stacked(SETTINGS_OPTIONS)
@report_option
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Predict step time and memory of one strategy.

    Exit code 1 if it does not fit, 2 if the engine would refuse it.
    """
    page = report_path(given["report"])
    ask = asked(question_from_options(given), given)
    situation = ask.situation

    from planner.attribution import configuration, stamp
    from planner.evaluation import evaluate

    prediction = evaluate(situation, ask.strategy)
    payload = (
        prediction.to_json()
        | {"configuration": configuration(situation, prediction), "made_with": stamp(situation)}
        | ask.to_json()
    )

    if page is not None:
        from planner.report import Reported, write_report

        write_report(page, Reported(situation, prediction))

    def show() -> None:
        from planner.render import show_evaluation

        show_evaluation(situation, prediction, page)

    return Answer(payload, show, given["as_json"], YES if prediction.fits else NO)
