"""Options that commands share, in the words of the contract."""

from collections.abc import Callable
from typing import Any, Final

import click

from cost_models.specs.job import MAX_BATCH, MAX_SEQ_LEN, Optimizer, Precision
from planner.cli.types import KeyValue, OneOf, WholeNumber

Function = Callable[..., Any]

JOB_KEYS: Final = ("seq_len", "global_batch", "precision", "engine", "optimizer")

MODEL_HELP = (
    "A Hugging Face config.json, a layers file, - for standard input, a name of `planner catalog models`, or "
    "package.module:factory of an nn.Module."
)
CLUSTER_HELP = "A preset, preset:N for N devices, a .toml or .json file, or - for standard input."
SET_HELP = "A typed option such as engine.attention=flash or job.train_mtp=true; repeatable."

model_option = click.option("--model", metavar="MODEL", help=MODEL_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
progress_option = click.option(
    "--progress", type=OneOf(("jsonl",)), help="Write progress to standard error, one JSON object a line."
)
strategy_option = click.option(
    "--strategy",
    metavar="STRATEGY",
    help='Text such as "tp=8,pp=4,mbs=1", a JSON file, or - for standard input.',
)

_JOB = (
    click.option(
        "--seq-len", type=WholeNumber(1, MAX_SEQ_LEN), help="Tokens of a sequence; not for vision models."
    ),
    click.option(
        "--global-batch", type=WholeNumber(1, MAX_BATCH), help="Sequences (vision: samples) of a step."
    ),
    click.option(
        "--precision", type=OneOf([p.value for p in Precision]), help="Matrix multiplications; default bf16."
    ),
    click.option("--engine", metavar="NAME[@VERSION]", help="Training framework; default megatron."),
    click.option("--optimizer", type=OneOf([o.value for o in Optimizer]), help="Default adamw."),
    click.option(
        "--set",
        "settings",
        type=KeyValue("job.train_mtp=true"),
        multiple=True,
        metavar="KEY=VALUE",
        help=SET_HELP,
    ),
)


_REQUEST = (model_option, click.option("--cluster", metavar="CLUSTER", help=CLUSTER_HELP), *_JOB)


def job_options(function: Function) -> Function:
    """The job alone, for commands that take several clusters."""
    return stacked(_JOB)(function)


def request_options(function: Function) -> Function:
    """Model, cluster and job, as every question about a job takes them."""
    return stacked(_REQUEST)(function)


def stacked(options: tuple[Callable[[Any], Any], ...]) -> Callable[[Function], Function]:
    """Several click options as one decorator, shown by help in this order."""

    def apply(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return apply
