"""`planner plan --server`: the search of a service, followed by its events."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from planner.answers import Progress
from planner.cli.answer import NO, YES, Answer
from planner.cli.progress import end_progress, reporter
from planner.cli.question import question_from_options, situation_of
from planner.cli.remote import asking, question_body, raise_problem
from planner.cli.reporting import Recorder
from planner.request import SearchRequest

PLAN_KEYS: Final = ("schema_version", "id", "request", "result", "made_with")
HERE: Final = {"from_plan": "--from", "checkpoint": "--checkpoint", "plans": "--plans"}


def plan_remotely(
    given: Mapping[str, Any], search: SearchRequest, output: Path | None, page: Path | None
) -> Answer:
    """Ask a server for the plan; the same answer, files and exit code as a search here."""
    for key, option in HERE.items():
        if given[key] is not None:
            raise BadInput(f"{option} works on files of this machine; leave --server out")
    situation = situation_of(question_from_options(dict(given)))
    body = question_body(situation) | {"search": search.model_dump(mode="json")}
    recorder = Recorder(reporter(given["progress"]))

    def on_event(kind: str, event: Mapping[str, Any]) -> None:
        if kind in ("progress", "incumbent"):
            recorder(_progress(event))

    try:
        with asking(given) as client:
            plan = client.plan(body, on_event)
    finally:
        end_progress()
    if plan["state"] != "succeeded":
        raise_problem(plan["problem"] or {"detail": f"the plan was {plan['state']}"})
    if output is not None:
        from planner.plan_file import write_plan

        write_plan(output, {key: plan[key] for key in PLAN_KEYS})
    from planner.answered.plans import plan_result

    result = plan_result(situation, plan["result"])
    if page is not None:
        from planner.report import Reported, write_report

        write_report(page, Reported.of_plan(situation, result, recorder.events))

    def show() -> None:
        from planner.render import show_plan

        show_plan(situation, result, output, page)

    return Answer(plan["result"], show, given["as_json"], YES if result.best else NO)


def _progress(event: Mapping[str, Any]) -> Progress:
    found = event.get("progress", event)
    return Progress(
        "search",
        found.get("lower_bound_s"),
        found.get("best_step_s"),
        found.get("gap"),
        int(found.get("meshes_done") or 0),
        int(found.get("meshes_total") or 0),
    )
