"""`planner check`: the gate of a CI."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, YES, Answer
from planner.cli.document import read_document
from planner.cli.inputs import read_json, read_text
from planner.cli.jobs_file import JobsFile, jobs_of, refusal_of
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import Question, question_from_options, question_of_document
from planner.cli.remote import SERVER_OPTIONS, asking, server_of, source_body
from planner.cli.settings_file import SETTINGS_OPTIONS, Asked, asked
from planner.cli.types import Number, OneOf

if TYPE_CHECKING:
    from planner.checking import Limits
    from planner.gate import NamedCheck

FORMATS = ("text", "github", "junit", "sarif", "markdown")
LIMITS = ("max_memory_fraction", "max_slowdown", "max_memory_growth")

_GATE = (
    click.option(
        "--max-memory-fraction", type=Number(0, 1, percent=True), help="Most of the device's memory to use."
    ),
    click.option("--fail-at-risk", is_flag=True, help="Exit 1 also where memory may run out."),
    click.option(
        "--baseline",
        metavar="FILE",
        help="What `planner baseline` wrote, a plan file, or the JSON of evaluate or check, to compare with.",
    ),
    click.option(
        "--max-slowdown", type=Number(0, 100, percent=True), help="Allowed over the baseline; default 5%."
    ),
    click.option(
        "--max-memory-growth",
        type=Number(0, 100, percent=True),
        help="Allowed over the baseline's memory; default any that fits.",
    ),
    click.option("--output-format", type=OneOf(FORMATS), help="For people, or for a CI; default text."),
)


@click.command(name="check", short_help="Does it fit, and is it no worse than a baseline?")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@stacked(SETTINGS_OPTIONS)
@stacked(_GATE)
@stacked(SERVER_OPTIONS)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Hold one strategy, or every job of a planner.yaml, against limits and a baseline.

    The question comes from options, from settings of a framework, from a plan file, or from a planner.yaml with
    the keys model, cluster, job and strategy, or a list of such jobs; options win. Exit code 0 yes, 1 no, 2 bad
    input or an illegal strategy.
    """
    if given["as_json"] and given["output_format"] is not None:
        raise click.UsageError("--json and --output-format both say what to print; give one of them")
    name = given["baseline"]
    baseline = read_json(read_text(name, "baseline"), name, "baseline") if name else None
    document = read_document(given["source"]) if given["source"] else None
    listed = jobs_of(document) if document else None
    if listed is not None:
        if server_of(given) is not None:
            raise BadInput("a list of jobs is checked here; leave --server out, or give one job")
        return _many(listed, given, baseline)
    return _one(question_of_document(document) if document else Question(), given, baseline)


def _one(base: Question, given: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> Answer:
    """The answer for one strategy; options win over `base`."""
    ask = asked(question_from_options(given).over(base), given)

    subject = given["source"] or given.get("settings_file") or "planner check"
    checked = _remotely if server_of(given) is not None else _checked
    checks = (checked(ask, given, subject, baseline),)
    report = checks[0].report
    if report is None:
        raise BadInput(checks[0].refusal)
    return Answer(
        report.to_json() | ask.to_json() | {"warnings": list(checks[0].warnings)},
        lambda: _show(checks, given, subject),
        given["as_json"],
        YES if report.passed else NO,
    )


def _checked(
    ask: Asked, given: Mapping[str, Any], subject: str, baseline: Mapping[str, Any] | None
) -> "NamedCheck":
    """One strategy, checked here."""
    from planner.checking import check
    from planner.gate import NamedCheck, baseline_of

    before, notes = baseline_of(baseline, subject)
    return NamedCheck(
        subject, check(ask.situation, ask.strategy, _limits(given, {}), before), notes=(*notes, *ask.notes())
    )


def _remotely(
    ask: Asked, given: Mapping[str, Any], subject: str, baseline: Mapping[str, Any] | None
) -> "NamedCheck":
    """One strategy, checked by a server; its notes are among its warnings."""
    from planner.answered.plans import check_report
    from planner.gate import NamedCheck

    stated = {key: given[key] for key in LIMITS if given[key] is not None}
    more = {"fail_at_risk": given["fail_at_risk"], "baseline": baseline, "subject": subject[:200]}
    with asking(given) as client:
        found = client.check(source_body(ask.situation, ask.strategy) | stated | more)
    return NamedCheck(subject, check_report(ask.situation, found))


def _many(listed: JobsFile, given: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> Answer:
    """The answer for a list of jobs; one that cannot be predicted fails and stops no other."""
    from planner.gate import gate_json

    checks = checks_of(listed, question_from_options(given), _limits(given, listed.limits), baseline)
    source = str(given["source"])
    return Answer(
        gate_json(checks),
        lambda: _show(checks, given, source),
        given["as_json"],
        YES if all(check.passed for check in checks) else NO,
    )


def checks_of(
    listed: JobsFile, over: Question, limits: "Limits", baseline: Mapping[str, Any] | None
) -> "tuple[NamedCheck, ...]":
    """Every job of a list, checked."""
    from planner.checking import check
    from planner.gate import NamedCheck, baseline_of

    found = []
    for job in listed.jobs:
        before, notes = baseline_of(baseline, job.name)
        try:
            ask = job.ask(over)
            report = check(ask.situation, ask.strategy, limits, before)
        except BadInput as error:
            found.append(NamedCheck(job.name, None, refusal_of(error), notes))
            continue
        found.append(NamedCheck(job.name, report, notes=notes))
    return tuple(found)


def _limits(given: Mapping[str, Any], stated: Mapping[str, Any]) -> "Limits":
    """Limits of the file, with those of the command line over them."""
    from planner.checking import Limits
    from planner.cli.question import validated_limits

    values = validated_limits(stated) | {key: given[key] for key in LIMITS if given[key] is not None}
    at_risk = bool(values.pop("fail_at_risk", False)) or given["fail_at_risk"]
    return Limits(fail_at_risk=at_risk, **values)


def _show(checks: "tuple[NamedCheck, ...]", given: Mapping[str, Any], source: str) -> None:
    style = given["output_format"] or "text"
    if style == "text":
        from planner.render import show_checks

        show_checks(checks)
        return
    from planner.render.check_formats import format_checks

    click.echo(format_checks(checks, style, source))
