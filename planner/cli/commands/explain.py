"""`planner explain`: why this plan, and why not another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, Answer
from planner.cli.document import Document, read_document
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.plan_input import plan_of_document
from planner.cli.question import Question, question_from_options, strategy_of
from planner.cli.remote import SERVER_OPTIONS, refuse_here, server_of
from planner.cli.reporting import report_option, report_path
from planner.cli.types import Number, WholeNumber


@click.command(name="explain", short_help="Why this plan; with --against, why not another strategy.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@click.option(
    "--against",
    metavar="STRATEGY",
    help='Why not this one? Text such as "tp=4" (the rest is searched), a file with a strategy, or -.',
)
@click.option(
    "--measured",
    metavar="RUN.json|TRACE",
    help="Why slower than predicted? JSON of planner run, a trace of torch's profiler, or a folder of them.",
)
@click.option(
    "--traced-steps", type=WholeNumber(1, 1_000_000), help="Steps in the trace, where it marks none."
)
@click.option(
    "--max-seconds",
    type=Number(0, 86_400),
    help="Time for searches; neighbours are priced behind it; default 30.",
)
@stacked(SERVER_OPTIONS)
@report_option
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Explain a plan: what binds each stage, what each axis costs and saves, runners-up, better hardware.

    With --measured a run's step is attributed to computing, messages, bubble, data and stragglers, beside the
    prediction. With --against the answer is about one other strategy: illegal by which rule, short by how many GiB
    where, or slower by how much and where. Exit code 0 whatever the answer is; 1 where the plan file holds no plan,
    with why and what would help. --report writes what was found with every view of the plan.
    """
    page = report_path(given["report"])
    stated = question_from_options(given)
    document = read_document(given["source"]) if given["source"] is not None else None
    unsolved = document.unsolved() if document and stated.strategy is None else None
    if unsolved is not None:
        return _unsolved(unsolved, given["as_json"])
    if given["measured"] is not None:
        if server_of(given) is not None:
            refuse_here(given, "--measured")
        if page is not None:
            raise BadInput("--report shows a plan, not --measured; leave one of the two out")
        return _measured(document, stated, given)
    asked = plan_of_document(document, stated)
    max_seconds = 30.0 if given["max_seconds"] is None else given["max_seconds"]
    if given["against"] is not None:
        return _against(asked, given, (max_seconds, page))

    from planner.cli.explain_remotely import explain_remotely
    from planner.explain import explain

    if server_of(given) is not None:
        explanation, payload = explain_remotely(asked, given, max_seconds)
    else:
        explanation = explain(asked.situation, asked.search, asked.strategy, asked.others, max_seconds)
        payload = explanation.to_json()
    if page is not None:
        from planner.report import Reason, Reported, write_report

        reason = Reason.of_explanation(asked.situation, explanation)
        write_report(page, Reported(asked.situation, explanation.plan, why=reason))

    def show() -> None:
        from planner.render.explain import show_explanation

        show_explanation(asked.situation, explanation, page)

    return Answer(payload, show, given["as_json"])


def _measured(document: Document | None, stated: Question, given: dict[str, Any]) -> Answer:
    """Why a run was slower than predicted."""
    from planner.cli.measured_run import attribute

    found = attribute(Path(given["measured"]), document, stated, given["traced_steps"])

    def show() -> None:
        from planner.render.slower import show_slower

        show_slower(found.to_json())

    return Answer(found.to_json(), show, given["as_json"])


def _unsolved(result: Mapping[str, Any], as_json: bool) -> Answer:
    """Why a plan file holds no plan, and what would help."""
    payload = {key: result.get(key) for key in ("status", "reason", "relaxations", "certificate")}

    def show() -> None:
        from planner.render.explain import show_unsolved

        show_unsolved(result)

    return Answer(payload, show, as_json, NO)


def _against(asked: Any, given: dict[str, Any], out: tuple[float, Path | None]) -> Answer:
    max_seconds, page = out
    if server_of(given) is not None:
        from planner.cli.explain_remotely import contrast_remotely

        contrast, payload = contrast_remotely(asked, given, max_seconds)
        plan = contrast.plan
    else:
        from planner.evaluation import evaluate
        from planner.explain import against

        other = strategy_of(Question(strategy=given["against"]))
        plan = evaluate(asked.situation, asked.strategy)
        contrast = against(asked.situation, asked.search, plan, other, max_seconds)
        payload = {"plan": plan.to_json(), "against": contrast.to_json()}
    if page is not None:
        from planner.report import Reason, Reported, write_report

        reason, names = Reason.of_contrast(asked.situation, contrast), ("The plan", contrast.asked)
        write_report(page, Reported(asked.situation, plan, why=reason, names=names))

    def show() -> None:
        from planner.render.explain import show_contrast

        show_contrast(asked.situation, contrast, page)

    return Answer(payload, show, given["as_json"])
