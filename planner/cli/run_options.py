"""Options about the run that the steps belong to: amount, deadline, price, failures; for `plan`, `size` and `sweep`."""

from collections.abc import Mapping
from typing import Any, Final

import click

from planner.cli.options import Function, stacked
from planner.cli.types import Amount, Duration, Number

RUN_KEYS: Final = (
    "tokens",
    "deadline_s",
    "min_tokens_per_s",
    "price_per_device_hour_usd",
    "pue",
    "mtbf_device_hours",
    "restart_s",
    "checkpoint_bytes_per_s_per_device",
    "checkpoint_s",
    "checkpoint_interval_s",
)

tokens_option = click.option(
    "--tokens", type=Amount(), help="Tokens (vision: samples) of the whole run, as 1e12 or 15T."
)

_DEADLINE = (
    click.option(
        "--deadline",
        "deadline_s",
        type=Duration(),
        metavar="30d",
        help="When the run must be done; needs --tokens.",
    ),
    click.option(
        "--min-tokens-per-s", type=Amount(), help="Least rate of all devices together, failures not counted."
    ),
)

_MONEY_AND_FAILURES = (
    click.option(
        "--price-per-device-hour",
        "price_per_device_hour_usd",
        type=Number(0, 1e6),
        metavar="USD",
        help="Price of one device; default the cluster's own, if known.",
    ),
    click.option("--pue", type=Number(1, 10), help="Power usage effectiveness of the site; default 1."),
    click.option(
        "--mtbf-device-hours",
        type=Amount(),
        help="Hours of one device between two failures of a run; default 50,677 (Llama 3).",
    ),
    click.option(
        "--restart", "restart_s", type=Duration(), metavar="10m", help="Time to restart; default 10m."
    ),
    click.option(
        "--checkpoint-bytes-per-s",
        "checkpoint_bytes_per_s_per_device",
        type=Amount(),
        help="Storage bandwidth for each device; default 122M.",
    ),
    click.option(
        "--checkpoint-time",
        "checkpoint_s",
        type=Duration(),
        metavar="30s",
        help="Time that a checkpoint stops training; default its bytes over the bandwidth.",
    ),
    click.option(
        "--checkpoint-interval",
        "checkpoint_interval_s",
        type=Duration(),
        metavar="30m",
        help="Work between two checkpoints; default the optimum.",
    ),
)


def run_options(function: Function) -> Function:
    """Everything about the run."""
    return stacked((tokens_option, *_DEADLINE, *_MONEY_AND_FAILURES))(function)


def money_and_failure_options(function: Function) -> Function:
    """Price, energy and failures, for commands that ask for amount and time in their own words."""
    return stacked(_MONEY_AND_FAILURES)(function)


def run_values(given: Mapping[str, Any]) -> dict[str, object]:
    """What the options state, as the keys of a RunRequest."""
    return {key: given[key] for key in RUN_KEYS if given.get(key) is not None}
