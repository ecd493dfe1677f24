"""`planner compare`: two plans side by side."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from planner.cli.answer import Answer
from planner.cli.options import json_option, request_options, stacked
from planner.cli.plan_input import AskedPlan, asked_plan, is_plan_source
from planner.cli.question import Question, question_from_options, strategy_of
from planner.cli.remote import SERVER_OPTIONS, asking, server_of, source_body
from planner.cli.reporting import report_option, report_path

if TYPE_CHECKING:
    from planner.compare import Comparison


@click.command(name="compare", short_help="Two plans or strategies side by side.")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@request_options
@stacked(SERVER_OPTIONS)
@report_option
@json_option
def command(**given: Any) -> Answer:
    """Compare two plans: knobs, time by cause, memory of each stage, and which is faster with what probability.

    A and B are plan files, planner.yaml files, or strategies ("tp=8,pp=4"); a strategy is priced for the question of
    the options, or of the other argument.
    """
    page = report_path(given["report"])
    stated = question_from_options(given)
    names = [given["first"], given["second"]]
    plans = [asked_plan(name, stated) if is_plan_source(name) else None for name in names]
    known = next((plan for plan in plans if plan is not None), None)
    first, second = (
        plan or _strategy_for(name, known, stated) for name, plan in zip(names, plans, strict=True)
    )

    from planner.compare import compare, side

    if server_of(given) is not None:
        comparison, payload = _remotely(first, second, given)
    else:
        comparison = compare(side(first.situation, first.strategy), side(second.situation, second.strategy))
        payload = comparison.to_json()

    if page is not None:
        from planner.report import Reason, Reported, write_report

        sides = (given["first"][:60], given["second"][:60])
        of = Reported(
            first.situation, comparison.first.prediction, why=Reason.of_comparison(comparison), names=sides
        )
        write_report(page, of)

    def show() -> None:
        from planner.render.explain import show_comparison

        show_comparison(comparison, (given["first"], given["second"]), page)

    return Answer(payload, show, given["as_json"])


def _remotely(
    first: AskedPlan, second: AskedPlan, given: Mapping[str, Any]
) -> "tuple[Comparison, dict[str, Any]]":
    """The same from a server."""
    from planner.answered.explanations import comparison

    bodies = [source_body(each.situation, each.strategy) for each in (first, second)]
    with asking(given) as client:
        found = client.compare({"first": bodies[0], "second": bodies[1]})
    return comparison((first.situation, second.situation), found), found


def _strategy_for(text: str, known: AskedPlan | None, stated: Question) -> AskedPlan:
    """A bare strategy, priced for the question of the other argument or of the options."""
    if known is None:
        return asked_plan(None, Question(stated.model, stated.cluster, stated.job, text))
    return AskedPlan(known.situation, strategy_of(Question(strategy=text)), known.search)
