"""`planner export`: a plan as the settings of a training framework."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import YES, Answer
from planner.cli.document import Document, read_document
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import (
    Question,
    question_from_options,
    question_of_document,
    situation_of,
    strategy_of,
)
from planner.cli.remote import SERVER_OPTIONS, asking, export_of, server_of, source_body

if TYPE_CHECKING:
    from planner.formats.export import Export

_EXPORT = (
    click.option(
        "--to", "target", metavar="FORMAT", required=True, help="Whose settings; see docs/formats.md."
    ),
    click.option(
        "-o", "--output", metavar="DIR", help="Folder for the files; without it they are only shown."
    ),
)


@click.command(name="export", short_help="Settings and launch script of a training framework.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@stacked(_EXPORT)
@stacked(SERVER_OPTIONS)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Write a plan, or a stated strategy, as a framework's settings and the script that starts it.

    What the framework cannot do is refused; what its settings cannot say is listed as a loss. Exit code 0 yes,
    2 bad input, an illegal strategy, or a plan that the framework cannot run.
    """
    document = read_document(given["source"]) if given["source"] else None
    base = question_of_document(document) if document else Question()
    question = question_from_options(given).over(base)
    if question.model is None:
        raise BadInput(
            "no plan given; give a plan file, or --model, --cluster, --global-batch and --strategy"
        )

    plan_id = document.plan_id if document else ""
    export = (
        _made(question, given, plan_id) if server_of(given) is None else _remotely(question, given, document)
    )
    written = export.write(Path(given["output"])) if given["output"] else ()
    payload = export.to_json() | {"written": [str(path) for path in written]}

    def show() -> None:
        _show(export, written)

    return Answer(payload, show, given["as_json"], YES)


def _made(question: Question, given: Mapping[str, Any], plan_id: str) -> "Export":
    """The files, written here."""
    from planner.evaluation import evaluate
    from planner.formats.export import PlannedRun
    from planner.formats.registry import write_settings

    situation = situation_of(question)
    prediction = evaluate(situation, strategy_of(question))
    return write_settings(PlannedRun(situation, prediction.strategy, plan_id), given["target"])


def _remotely(question: Question, given: Mapping[str, Any], document: Document | None) -> "Export":
    """The files of a server; a plan file is sent whole where no option changes it, so that they name the plan."""
    stated = question_from_options(given)
    is_whole = document is not None and document.is_plan and stated == Question()
    body = (
        {"plan": document.values}
        if document is not None and is_whole
        else source_body(situation_of(question), strategy_of(question))
    )
    with asking(given) as client:
        return export_of(client.export(body | {"format": given["target"]}))


def _show(export: "Export", written: tuple[Path, ...]) -> None:
    from planner.render.export import show_export

    show_export(export, written)
