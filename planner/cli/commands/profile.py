"""`planner profile`: measure this machine's device."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from cost_models.specs.cluster import MAX_DEVICES
from planner.cli.answer import Answer
from planner.cli.options import json_option, progress_option, request_options
from planner.cli.profiles_folder import measured_in
from planner.cli.progress import end_progress, profile_reporter
from planner.cli.question import load_model_input, question_from_options, situation_of, validated
from planner.cli.types import Number, WholeNumber

if TYPE_CHECKING:
    from cost_models.profiles import MeasuredProfile
    from planner.executor.profiled.order import ProfileOrder
    from planner.request import PlanRequest

DEFAULT_MINUTES = 10.0
DEFAULT_SEQ_LEN = 2048
DEFAULT_BATCH = 8
DEFAULT_TOLERANCE = 0.05
NARROW = ("fp8", "mxfp8", "nvfp4")
"""Precisions whose other kernels run in bf16, which is measured."""
DEFAULT_ENGINE = "torch"


@click.command(
    name="profile", short_help="Measure this machine's device; with --model also that model's layers."
)
@request_options
@click.option("--minutes", type=Number(0, 1440), help="Time for measuring; default 10.")
@click.option(
    "--tolerance", type=Number(0, 1), help="Half width of the interval of a case that is done; default 0.05."
)
@click.option("--micro-batches", metavar="1,2,4", help="Micro-batch sizes of the model's shapes; default 1.")
@click.option("--tp", metavar="1,2", help="Tensor-parallel sizes of the model's shapes; default 1.")
@click.option("--no-grid", is_flag=True, help="The model's own shapes only.")
@click.option(
    "--alone", is_flag=True, help="One process: no collectives, on a CPU all its cores for one process."
)
@click.option("-o", "--output", type=click.Path(file_okay=False), metavar="FOLDER", help="Where profiles go.")
@click.option(
    "--device-file",
    type=click.Path(dir_okay=False),
    metavar="FILE.toml",
    help="Measure nothing: write a cluster file of the device that was measured last.",
)
@click.option(
    "--devices", type=WholeNumber(1, MAX_DEVICES), help="Devices of a node in that file; default 1."
)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Measure kernels, layers, memory and collectives of this machine's device within a time, and write a profile.

    Predictions for this device use it from then on. Without -o it goes to the user's data folder; name another one in
    PARALLELISM_PLANNER_MEASURED. An interrupted profile is used as far as it goes, and says so.
    """
    if given["device_file"]:
        return _device_file(given)

    from planner.executor.profiled.run import profile_device

    folder = Path(given["output"]) if given["output"] else None
    order = _order(given)
    report = profile_reporter(given["progress"], quiet=given["as_json"])
    with measured_in(folder):
        found = profile_device(order, folder, alone=given["alone"], on_event=report)
        end_progress()
        payload = _payload(found, order)

    def show() -> None:
        from planner.render.profile import show_profile

        show_profile(payload)

    return Answer(payload, show, given["as_json"])


def _payload(found: "MeasuredProfile", order: "ProfileOrder") -> dict[str, object]:
    from planner.executor.profiled.describe import profile_json

    return profile_json(found, order)


def _order(given: dict[str, Any]) -> "ProfileOrder":
    """The profiler's order from the options; raises BadInput naming what is wrong."""
    from planner.executor.profiled.order import ProfiledModel, ProfileOrder

    sizes = {
        "micro_batches": _numbers(given["micro_batches"], "--micro-batches"),
        "tp": _numbers(given["tp"], "--tp"),
    }
    request = _request(given) if given["model"] else None
    if given["no_grid"] and request is None:
        raise BadInput("--no-grid without --model leaves nothing to measure; give --model")
    precision = given["precision"] or ("bf16" if request is None else request.job.precision.value)
    values = {
        "precision": "bf16" if precision in NARROW else precision,
        "budget_s": 60.0 * (given["minutes"] or DEFAULT_MINUTES),
        "tolerance": given["tolerance"] or DEFAULT_TOLERANCE,
        "grid": not given["no_grid"],
        "models": () if request is None else (ProfiledModel(request=request, **sizes),),
    }
    return validated(ProfileOrder, values, "profile")


def _request(given: dict[str, Any]) -> "PlanRequest":
    """The model's question on one device of this machine, unless a cluster is named."""
    from planner.executor.profiled.seen import cluster_of_device, seen_device
    from planner.plan_file import resolved_request
    from planner.request import SearchRequest

    stated = question_from_options({**given, "strategy": None})
    cluster = stated.cluster or cluster_of_device(seen_device())
    job = {"global_batch": DEFAULT_BATCH, "engine": DEFAULT_ENGINE, **stated.job}
    if job.get("seq_len") is None:
        job["seq_len"] = DEFAULT_SEQ_LEN
    question = replace(stated, cluster=cluster, job=job)
    if load_model_input(question.model or "").is_vision:
        question = replace(question, job={key: value for key, value in job.items() if key != "seq_len"})
    return resolved_request(situation_of(question), SearchRequest())


def _numbers(text: str | None, option: str) -> tuple[int, ...]:
    parts = (text or "1").split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"{option} is {text!r:.60}; give whole numbers with commas between, such as 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def _device_file(given: dict[str, Any]) -> Answer:
    """The cluster file of the newest profile."""
    from cost_models.profiles import measured_devices, read_profile
    from cost_models.profiles.device_file import cluster_text

    path = Path(given["device_file"])
    with measured_in(Path(given["output"]) if given["output"] else None):
        known = sorted(measured_devices(), key=lambda pair: pair[1].name)
    if not known:
        raise BadInput("no device was measured yet; run planner profile first, or give its folder with -o")
    profile = read_profile(known[-1][1])
    try:
        path.write_text(cluster_text(profile, given["devices"] or 1), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(f"{path} cannot be written ({reason}); name another file") from None
    payload = {"device": profile.manifest.device, "profile": profile.title, "written": str(path)}

    def show() -> None:
        from planner.render.profile import show_device_file

        show_device_file(payload)

    return Answer(payload, show, given["as_json"])
