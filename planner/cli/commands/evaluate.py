"""`planner evaluate`: what one strategy costs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import question_from_options
from planner.cli.remote import SERVER_OPTIONS, asking, raise_problem, server_of, source_body
from planner.cli.reporting import report_option, report_path
from planner.cli.settings_file import SETTINGS_OPTIONS, Asked, asked

if TYPE_CHECKING:
    from planner.answers import Prediction


@click.command(name="evaluate", short_help="Step time and memory of one strategy.")
@request_options
@strategy_option
@stacked(SETTINGS_OPTIONS)
@stacked(SERVER_OPTIONS)
@report_option
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Predict step time and memory of one strategy.

    Exit code 1 if it does not fit, 2 if the engine would refuse it.
    """
    page = report_path(given["report"])
    ask = asked(question_from_options(given), given)
    if server_of(given) is not None:
        return _remotely(ask, given, page)

    from planner.attribution import configuration, stamp
    from planner.evaluation import evaluate

    prediction = evaluate(ask.situation, ask.strategy)
    more = {"configuration": configuration(ask.situation, prediction), "made_with": stamp(ask.situation)}
    return _answer(ask, prediction, prediction.to_json() | more, (page, given["as_json"]))


def _remotely(ask: Asked, given: Mapping[str, Any], page: Path | None) -> Answer:
    """The same from a server."""
    from planner.answered.plans import prediction

    body = source_body(ask.situation, ask.strategy)
    body["strategies"] = [body.pop("strategy")]
    with asking(given) as client:
        (item,) = client.evaluate(body)
    if "problem" in item:
        raise_problem(item["problem"])
    found = item["evaluation"]
    return _answer(ask, prediction(ask.situation, found), found, (page, given["as_json"]))


def _answer(
    ask: Asked, prediction: "Prediction", payload: dict[str, object], out: tuple[Path | None, bool]
) -> Answer:
    """What is printed, for people or as JSON, and the report where one is asked for."""
    page, as_json = out
    if page is not None:
        from planner.report import Reported, write_report

        write_report(page, Reported(ask.situation, prediction))

    def show() -> None:
        from planner.render import show_evaluation

        show_evaluation(ask.situation, prediction, page, ask.notes())

    return Answer(payload | ask.to_json(), show, as_json, YES if prediction.fits else NO)
