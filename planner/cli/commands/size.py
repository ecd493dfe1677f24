"""`planner size`: how many devices for so many tokens in so many days, and at what price."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest
from planner.cli.answer import NO, YES, Answer
from planner.cli.options import CLUSTER_HELP, job_options, json_option, model_option, progress_option, stacked
from planner.cli.question import (
    Question,
    load_cluster_input,
    load_model_input,
    question_from_options,
    validated,
)
from planner.cli.remote import SERVER_OPTIONS, asking, server_of
from planner.cli.run_options import money_and_failure_options, run_values, tokens_option
from planner.cli.types import KeyValue, Number, WholeNumber, WholeNumbers
from planner.search_request import check_search, pins_of

if TYPE_CHECKING:
    from planner.sizing import SizeReport, SizeRequest

DAY_S = 86_400.0
MOST_SECONDS: Final = 300.0
"""What a server gives a table at most."""

_SIZE = (
    tokens_option,
    click.option("--days", type=Number(1e-6, 1e6), help="Days in which the run must be done."),
    click.option(
        "--devices",
        type=WholeNumbers(1, 10_000_000),
        metavar="N,N,...",
        help="Numbers of devices to show; default 1, 2, 4, ... nodes.",
    ),
)
_SEARCH = (
    click.option(
        "--pin", "pins", type=KeyValue("tp=8"), multiple=True, help="Fix a knob, as in tp=8; repeatable."
    ),
    click.option("--ban", "bans", multiple=True, metavar="KEY=VALUE", help="Forbid a value; repeatable."),
    click.option("--max-seconds", type=Number(0.001, 86_400), help="Time limit of each search; default 60."),
    click.option("--gap", type=Number(0, 0.999), help="Optimal within this share; default 0.001."),
    click.option("--allow-at-risk", is_flag=True, help="Also plans that may run out of memory."),
    click.option(
        "--within",
        type=Number(0.001, 864_000),
        help="Seconds for the whole table, which says what they left out; default no limit, 300 with --server.",
    ),
    click.option("--jobs", type=WholeNumber(1, 1024), help="Processes; default every core."),
)


@click.command(name="size", short_help="How many devices for so many tokens in so many days.")
@model_option
@click.option("--cluster", "clusters", multiple=True, metavar="CLUSTER", help=f"{CLUSTER_HELP} Repeatable.")
@job_options
@stacked(_SIZE)
@money_and_failure_options
@stacked(_SEARCH)
@stacked(SERVER_OPTIONS)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Plan a run of --tokens on many numbers of devices: days, cost, energy, and the fewest that meet --days.

    A preset without a number is open: the table reaches as far as the deadline needs. Exit code 1 if nothing will do.
    """
    from planner.cli.progress import end_progress, row_reporter
    from planner.sizing import size

    request = _request_of(given)
    if server_of(given) is not None:
        report, payload = _remotely(request, given)
    else:
        try:
            report = size(request, given["jobs"] or 0, row_reporter(given["progress"]), given["within"])
        finally:
            end_progress()
        payload = report.to_json()

    def show() -> None:
        from planner.render.size import show_size

        show_size(report)

    return Answer(payload, show, given["as_json"], YES if report.is_yes else NO)


def _remotely(request: "SizeRequest", given: Mapping[str, Any]) -> "tuple[SizeReport, dict[str, Any]]":
    """The same from a server, within the time that it gives one question."""
    from planner.answered.sizes import size_report

    within = MOST_SECONDS if given["within"] is None else given["within"]
    with asking(given) as client:
        found = client.size(request.model_dump(mode="json") | {"max_seconds": within})
    return size_report(request.search, found), found


def _request_of(given: Mapping[str, Any]) -> Any:
    from planner.sizing import SizeRequest

    question = question_from_options(dict(given) | {"cluster": None, "strategy": None})
    if not question.model:
        raise BadInput("no model given; give --model", pointer="/model")
    if not given["clusters"]:
        raise BadInput("no cluster given; give --cluster, for example --cluster dgx-h100", pointer="/cluster")
    if question.job.get("global_batch") is None:
        raise BadInput("no global batch given; give --global-batch", pointer="/job/global_batch")
    search: dict[str, object] = {key: given[key] for key in ("max_seconds", "gap") if given[key] is not None}
    run = run_values(given) | ({} if given["days"] is None else {"deadline_s": given["days"] * DAY_S})
    search |= {"pins": pins_of(given["pins"]), "bans": given["bans"], "allow_at_risk": given["allow_at_risk"]}
    search |= {"run": run, "top_k": 0, "explain": False}
    values = {
        "model": _model(question),
        "clusters": [_cluster(text) for text in given["clusters"]],
        "job": validated(JobRequest, question.job, "job"),
        "search": search,
        "devices": given["devices"] or (),
    }
    request = validated(SizeRequest, values, "size")
    check_search(request.search)
    return request


def _model(question: Question) -> dict[str, object]:
    model = load_model_input(question.model or "")
    return {"kind": "layers", "spec": model.model_dump(mode="json")}


def _cluster(text: str) -> dict[str, object]:
    """A named cluster; only a bare preset leaves the number of devices open."""
    from cost_models.profiles import list_clusters

    cluster = load_cluster_input(text)
    spec = {"kind": "spec", "spec": cluster.model_dump(mode="json")}
    return {"name": text[:200], "cluster": spec, "is_open": text in list_clusters() and text != "cpu"}
