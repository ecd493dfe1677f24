"""`planner plan`: the best plan for a model, a cluster and a job, with its certificate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from cost_models.errors import BadInput
from cost_models.specs.strategy import MAX_DEGREE
from planner.cli.answer import NO, YES, Answer
from planner.cli.options import json_option, progress_option, request_options, stacked
from planner.cli.plan_again import plan_again
from planner.cli.question import question_from_options, situation_of, validated
from planner.cli.remote import SERVER_OPTIONS, server_of
from planner.cli.reporting import Recorder, report_option, report_path
from planner.cli.run_options import run_options, run_values
from planner.cli.types import KeyValue, Number, OneOf, WholeNumber
from planner.cli.writable import output_path
from planner.request import SearchRequest
from planner.search_request import OBJECTIVES, check_search, pins_of

SEARCH_KEYS = ("objective", "top_k", "max_seconds", "gap", "seed")

_SEARCH = (
    click.option(
        "--pin", "pins", type=KeyValue("tp=8"), multiple=True, help="Fix a knob, as in tp=8; repeatable."
    ),
    click.option(
        "--ban",
        "bans",
        multiple=True,
        metavar="KEY=VALUE",
        help="Forbid a value, as in schedule=gpipe; repeatable.",
    ),
    click.option(
        "--vary",
        "vary",
        type=KeyValue("grad_dtype=bf16,fp32"),
        multiple=True,
        help="Values that an option may have, as in grad_dtype=bf16,fp32; repeatable.",
    ),
    click.option(
        "--objective",
        type=OneOf(OBJECTIVES),
        help="What is made small or large; default step_time (docs/objectives.md).",
    ),
    click.option(
        "--max-tp",
        type=WholeNumber(1, MAX_DEGREE),
        help="Largest tensor-parallel size; default the devices that the fastest links join.",
    ),
    click.option("--top-k", type=WholeNumber(0, 100), help="Alternatives to show; default 5."),
    click.option("--max-seconds", type=Number(0.001, 86_400), help="Time limit of the search; default 60."),
    click.option("--gap", type=Number(0, 0.999), help="Optimal within this share; default 0.001."),
    click.option("--seed", type=WholeNumber(0, 2**31 - 1), help="Random seed; default 0."),
    click.option("--allow-at-risk", is_flag=True, help="Also plans that may run out of memory."),
    click.option("--prefer-simple", is_flag=True, help="The simplest plan that is as fast within the noise."),
    click.option(
        "-o", "--output", type=click.Path(dir_okay=False), metavar="PLAN.json", help="Write the plan file."
    ),
)

_AGAIN = (
    click.option(
        "--from",
        "from_plan",
        metavar="PLAN.json",
        help="Plan again on other devices, keeping the global batch.",
    ),
    click.option(
        "--checkpoint",
        type=OneOf(("any", "same")),
        help="With --from: same keeps tp, pp, vpp, ep and etp, so that the checkpoint is not cut anew; default any.",
    ),
)

_FRONT = (
    click.option("--pareto", is_flag=True, help="Also the front of time against memory against devices."),
    click.option(
        "--plans",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="With --pareto: write the plan file of every point of the front.",
    ),
)


@click.command(name="plan", short_help="The best plan, alternatives, and how far from optimal it can be.")
@request_options
@stacked(_SEARCH)
@run_options
@stacked(_FRONT)
@stacked(_AGAIN)
@stacked(SERVER_OPTIONS)
@report_option
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Find the best way to train MODEL on CLUSTER, with alternatives and a certificate.

    Exit code 1 if nothing legal fits; the answer then says the smallest changes that would help.
    """
    from planner.cli.progress import end_progress, reporter

    search = _search_of(given)
    output = output_path(given["output"])
    folder, page = _folder(given["plans"], search), report_path(given["report"])
    if server_of(given) is not None:
        from planner.cli.plan_remotely import plan_remotely

        return plan_remotely(given, search, output, page)
    if given["from_plan"] is not None:
        return plan_again(given, search, output, page)
    if given["checkpoint"] is not None:
        raise BadInput("--checkpoint without --from; give the plan whose checkpoint is to be loaded")
    situation = situation_of(question_from_options(given))

    from planner.make_plan import make_plan

    recorder = Recorder(reporter(given["progress"]))
    try:
        result = make_plan(situation, search, recorder)
    finally:
        end_progress()
    if output is not None:
        from planner.plan_file import plan_document, write_plan

        write_plan(output, plan_document(situation, search, result))
    if page is not None:
        from planner.report import Reported, write_report

        write_report(page, Reported.of_plan(situation, result, recorder.events))
    if folder is not None:
        from planner.objectives.files import with_files

        result = with_files(result, folder, situation, search)

    def show() -> None:
        from planner.render import show_plan

        show_plan(situation, result, output, page)

    return Answer(result.to_json(), show, given["as_json"], YES if result.best else NO)


def _search_of(given: Mapping[str, Any]) -> SearchRequest:
    values: dict[str, object] = {key: given[key] for key in SEARCH_KEYS if given[key] is not None}
    values |= {"pins": _pins(given), "bans": given["bans"], "allow_at_risk": given["allow_at_risk"]}
    values |= {"vary": {key: str(value) for key, value in pins_of(given["vary"]).items()}}
    values |= {"prefer_simple": given["prefer_simple"]}
    values |= {"run": run_values(given), "pareto": given["pareto"]}
    search = validated(SearchRequest, values, "search")
    check_search(search)
    return search


def _pins(given: Mapping[str, Any]) -> dict[str, object]:
    """What --pin and --max-tp fix."""
    pins: dict[str, object] = dict(pins_of(given["pins"]))
    if given["max_tp"] is not None:
        if "tp" in pins:
            raise BadInput(f"--max-tp {given['max_tp']} and --pin tp={pins['tp']}; give one of them")
        pins["tp"] = f"1..{given['max_tp']}"
    return pins


def _folder(name: str | None, search: SearchRequest) -> Path | None:
    """The folder for the plans of the front, made now so that the search is not lost to a folder that cannot be."""
    if name is None:
        return None
    if not search.pareto:
        raise BadInput("--plans without --pareto; add --pareto, or write the one plan with -o")
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--plans {name[:200]!r} cannot be made ({error.strerror}); choose another") from None
    return Path(name)
