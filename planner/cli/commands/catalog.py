"""`planner catalog`: what is known by name."""

from typing import Any

import click

from planner.cli.answer import Answer
from planner.cli.inputs import is_path
from planner.cli.options import json_option
from planner.cli.types import OneOf

KINDS = ("devices", "clusters", "models", "engines")


@click.command(name="catalog", short_help="Known devices, clusters, models and engines.")
@click.argument("kind", type=OneOf(KINDS), metavar="devices|clusters|models|engines")
@click.argument("name", required=False)
@json_option
def command(**given: Any) -> Answer:
    """List what is known by name, or describe one entry with the source of each figure.

    A cluster may also be a preset with a number of devices or a file, as --cluster takes it.
    """
    from cost_models.profiles import list_clusters, load_cluster
    from planner.catalog import describe_cluster, describe_entry, list_entries

    kind, name = given["kind"], given["name"]
    if kind == "clusters" and name and name not in list_clusters() and (":" in name or is_path(name)):
        payload = describe_cluster(load_cluster(name))
    else:
        payload = describe_entry(kind, name) if name else {kind: list_entries(kind)}

    def show() -> None:
        from planner.render import show_catalog

        show_catalog(kind, name, payload)

    return Answer(payload, show, given["as_json"])
