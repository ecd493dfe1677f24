"""`planner plans`: the plans that a service keeps."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import Answer
from planner.cli.options import json_option, stacked
from planner.cli.remote import SERVER_OPTIONS, asking, server_of
from planner.cli.types import OneOf, WholeNumber

STATES = ("queued", "running", "succeeded", "failed", "cancelled")
_FILTERS = (
    click.option("--name", help="Only plans of this name."),
    click.option("--tag", help="Only plans with this tag."),
    click.option("--state", type=OneOf(STATES), help="Only plans in this state."),
    click.option("--limit", type=WholeNumber(1, 100), default=20, show_default=True),
    click.option("--cursor", help="Where the page before ended."),
)


@click.group(name="plans", short_help="Plans that a planner-server keeps: list, show, cancel, delete.")
def command() -> None:
    """Look after the plans of a server; --server says which."""


@command.command(name="list")
@stacked(_FILTERS)
@stacked(SERVER_OPTIONS)
@json_option
def list_plans(**given: Any) -> Answer:
    """List plans, the newest first."""
    wanted = {key: given[key] for key in ("name", "tag", "state", "limit", "cursor")}
    return _answered(given, lambda client: client.list_plans(**wanted))


@command.command(name="show")
@click.argument("plan_id")
@stacked(SERVER_OPTIONS)
@json_option
def show_plan(**given: Any) -> Answer:
    """Show one plan; with --json the whole of it, which is a plan file."""
    return _answered(given, lambda client: client.read_plan(given["plan_id"]))


@command.command(name="cancel")
@click.argument("plan_id")
@stacked(SERVER_OPTIONS)
@json_option
def cancel_plan(**given: Any) -> Answer:
    """Cancel a plan that waits or is searched."""
    return _answered(given, lambda client: client.cancel_plan(given["plan_id"]))


@command.command(name="delete")
@click.argument("plan_id")
@stacked(SERVER_OPTIONS)
@json_option
def delete_plan(**given: Any) -> Answer:
    """Forget a plan that has ended and has no runs."""
    return _answered(given, lambda client: client.delete_plan(given["plan_id"]) or {"id": given["plan_id"]})


def _answered(given: Mapping[str, Any], ask: Callable[[Any], Mapping[str, Any]]) -> Answer:
    if server_of(given) is None:
        raise BadInput("no server given; give --server, for example --server http://127.0.0.1:8000")
    with asking(given) as client:
        found = ask(client)

    def show() -> None:
        from planner.render.plans import show_plans

        show_plans(found.get("items", [found]), found.get("next_cursor"))

    return Answer(found, show, given["as_json"])
