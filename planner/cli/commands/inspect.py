"""`planner inspect`: what a model is made of."""

from typing import Any

import click

from cost_models.errors import BadInput
from cost_models.specs.job import MAX_SEQ_LEN
from planner.cli.answer import Answer
from planner.cli.options import json_option, model_option, progress_option, stacked
from planner.cli.remote import SERVER_OPTIONS, asking, server_of
from planner.cli.types import OneOf, WholeNumber


@click.command(name="inspect", short_help="Parameters, FLOPs and layers of a model.")
@model_option
@click.option("--seq-len", type=WholeNumber(1, MAX_SEQ_LEN), help="Tokens of a sequence, for the FLOPs.")
@click.option(
    "--reader",
    type=OneOf(("auto", "plain", "transformers")),
    default="auto",
    help="Who reads a config: its family's reader, the module that transformers builds, or (auto) the second where "
    "there is no first.",
)
@stacked(SERVER_OPTIONS)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Count the parameters, FLOPs and layer kinds of a model."""
    from planner.cli.question import load_model_input
    from planner.inspect_model import inspect_model

    if not given["model"]:
        raise BadInput("no model given; give --model", pointer="/model")
    model = load_model_input(given["model"], given["reader"])
    if server_of(given) is not None:
        spec = {"kind": "layers", "spec": model.model_dump(mode="json")}
        with asking(given) as client:
            facts = client.inspect({"model": spec, "seq_len": given["seq_len"]})
    else:
        facts = inspect_model(model, given["seq_len"])

    def show() -> None:
        from planner.render import show_model

        show_model(facts)

    return Answer(facts, show, given["as_json"])
