"""`planner plan --from`: plan again on other devices after a plan was running."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.cli.answer import NO, YES, Answer
from planner.cli.plan_input import asked_plan
from planner.cli.question import Question, question_from_options, situation_of
from planner.request import SearchRequest


def plan_again(
    given: Mapping[str, Any], search: SearchRequest, output: Path | None, page: Path | None = None
) -> Answer:
    """The plan for the devices of the options, with what changes beside the plan of the file."""
    from planner.cli.progress import end_progress, reporter

    old = asked_plan(given["from_plan"], Question())
    search = _kept(old.search, search)
    stated = question_from_options(given)
    situation = situation_of(stated.over(old.question))

    from planner.evaluation import evaluate
    from planner.replan import replan

    before = evaluate(old.situation, old.strategy).strategy
    try:
        found = replan(
            (old.situation, before),
            situation,
            search,
            given["checkpoint"] or "any",
            reporter(given["progress"]),
        )
    finally:
        end_progress()
    if output is not None:
        from planner.plan_file import plan_document, write_plan

        write_plan(output, plan_document(found.situation, search, found.result))

    if page is not None:
        from planner.report import Reported, write_report

        write_report(page, Reported.of_plan(found.situation, found.result))

    def show() -> None:
        from planner.render.replan import show_replan

        show_replan(found, output)

    payload = found.result.to_json() | {"replan": found.to_json()}
    return Answer(payload, show, given["as_json"], YES if found.result.best else NO)


def _kept(before: SearchRequest, now: SearchRequest) -> SearchRequest:
    """The search of the options with the pins and bans of the plan where these name none of their own."""
    pins = {key: value for key, value in before.pins.items() if key not in ("dp", "dp_replicate")}
    bans = tuple(dict.fromkeys((*before.bans, *now.bans)))
    return now.model_copy(update={"pins": {**pins, **now.pins}, "bans": bans})
