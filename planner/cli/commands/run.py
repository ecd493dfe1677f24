"""`planner run`: train with a plan on this machine, and compare with its prediction."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, YES, Answer
from planner.cli.launching import (
    cancel_job,
    check_launch_options,
    dry_answer,
    is_launched,
    launch_exported,
    launch_order,
)
from planner.cli.options import json_option, progress_option, request_options, stacked, strategy_option
from planner.cli.question import (
    Question,
    question_from_file,
    question_from_options,
    situation_of,
    strategy_of,
    validated,
)
from planner.cli.training_options import FOLDERS, OPTION_KEYS, RUN_OPTIONS

if TYPE_CHECKING:
    from cost_models.specs.strategy import StrategyRequest
    from planner.errors import RunFailed
    from planner.executor.request import RunOptions, RunOrder
    from planner.executor.run import Start
    from planner.formats.export import PlannedRun
    from planner.situation import Situation


@click.command(name="run", short_help="Train with a plan on this machine; predicted beside measured.")
@click.argument("source", required=False, metavar="[PLAN.json|planner.yaml]")
@request_options
@strategy_option
@stacked(RUN_OPTIONS)
@json_option
@progress_option
def command(**given: Any) -> Answer:
    """Train with the best strategy of PLAN.json (`planner plan … -o PLAN.json`), or with --strategy.

    What would not run as planned is refused before anything starts (exit code 2). Exit code 1 if a rank fails, or if
    --verify finds a difference.
    """
    _check_combination(given)
    check_launch_options(given)
    if given["cancel"]:
        return cancel_job(given)
    if str(Path.cwd()) not in sys.path:  # where a factory or a data function lies, as for `python -m`
        sys.path.append(str(Path.cwd()))
    from planner.errors import RunFailed

    situation, strategy = _question_of(given)
    try:
        if given["script"] or _has_own_script(situation, given):
            return launch_exported(_planned(situation, strategy), given)
        return _run(situation, strategy, given)
    except RunFailed as failure:
        return _failed(failure, given["as_json"])


def _run(situation: "Situation", strategy: "StrategyRequest", given: Mapping[str, Any]) -> Answer:
    """The executor's own run, on this machine or through a launcher."""
    from planner.executor.request import order_of

    order = order_of(situation, strategy, _options_of(given))
    if not is_launched(given):
        if given["dry_run"]:
            return _dry_run(order, given)
        return _verify(order, given) if given["verify"] else _train(order, given)
    launched = launch_order(order, given)
    if isinstance(launched, Answer):
        return launched
    from planner.executor.remote import start_remote

    remote, folder = launched
    options = order.options.model_copy(update={"log_dir": str(folder)})
    order, start = replace(order, options=options), start_remote(remote)
    return _verify(order, given, start) if given["verify"] else _train(order, given, start)


def _question_of(given: Mapping[str, Any]) -> "tuple[Situation, StrategyRequest]":
    base = question_from_file(given["source"]) if given["source"] else Question()
    question = question_from_options(given).over(base)
    strategy = strategy_of(question)
    return situation_of(question), strategy


def _has_own_script(situation: "Situation", given: Mapping[str, Any]) -> bool:
    """Whether the plan's engine is started by a script of its own, which knows none of the executor's options."""
    from planner.executor.launch.exported import PACKAGES

    return situation.job.engine in PACKAGES and not given["verify"]


def _planned(situation: "Situation", strategy: "StrategyRequest") -> "PlannedRun":
    from planner.evaluation import Context, complete_legal
    from planner.formats.export import PlannedRun

    return PlannedRun(situation, complete_legal(Context.of(situation), strategy))


def _options_of(given: Mapping[str, Any]) -> "RunOptions":
    from planner.executor.request import RunOptions

    values: dict[str, object] = {key: given[key] for key in OPTION_KEYS if given[key] is not None}
    if given["no_clip"]:
        values["max_norm"] = None
    for key in FOLDERS:
        if given[key]:
            # In a pod paths hold below its own folder.
            is_path = (key, given[key]) != ("resume", "auto") and given["launcher"] != "kubernetes"
            values[key] = str(Path(given[key]).absolute()) if is_path else given[key]
    if given["profile"] and not given["log_dir"]:
        raise BadInput("--profile writes traces, but there is no folder for them; give --log-dir DIR")
    return validated(RunOptions, values | {"verify": given["verify"], "profile": given["profile"]}, "run")


def _check_combination(given: Mapping[str, Any]) -> None:
    if given["dry_run"] != bool(given["output"]):
        raise BadInput("--dry-run and -o DIR belong together; give both, or neither to run")
    if given["nproc"] and not given["dry_run"] and not is_launched(given):
        raise BadInput("--nproc is for --dry-run; a run here starts one process for each device of the plan")
    if not given["save_weights"] and (given["save_dtype"] or given["save_shard_bytes"]):
        raise BadInput(
            "--save-dtype and --save-shard-bytes are of weights that are written; give their folder with "
            "--save-weights DIR"
        )
    if not given["checkpoint"] and (given["every"] or given["keep"] is not None):
        raise BadInput("--every and --keep are of checkpoints; give their folder with --checkpoint DIR")
    if given["no_clip"] and given["max_norm"] is not None:
        raise BadInput("--no-clip and --max-norm contradict each other; give one of them")


def _dry_run(order: "RunOrder", given: Mapping[str, Any]) -> Answer:
    from planner.executor.launch.script import write_script
    from planner.executor.refuse import check_run

    check_run(order, devices=order.world_size)
    files = write_script(order, Path(given["output"]), given["nproc"])
    return dry_answer(files, order.strategy.to_json(), given["as_json"])


def _train(order: "RunOrder", given: Mapping[str, Any], start: "Start | None" = None) -> Answer:
    from planner.cli.progress import step_reporter
    from planner.executor.run import run_order

    report = run_order(order, step_reporter(given["progress"], quiet=given["as_json"]), start)

    def show() -> None:
        from planner.render import show_run

        show_run(_title(order), report.to_json())

    return Answer(report.to_json(), show, given["as_json"])


def _verify(order: "RunOrder", given: Mapping[str, Any], start: "Start | None" = None) -> Answer:
    from planner.executor.run import verify_order

    outcome = verify_order(order, start=start)

    def show() -> None:
        from planner.render import show_verification

        show_verification(_title(order), outcome.to_json())

    return Answer(outcome.to_json(), show, given["as_json"], YES if outcome.verified else NO)


def _title(order: "RunOrder") -> str:
    return f"{order.situation.model.name}: {order.strategy.mesh_text()}"


def _failed(failure: "RunFailed", as_json: bool) -> Answer:
    sys.stderr.write(f"planner: {failure}\n")
    return Answer({"ran": False, "failure": failure.to_json()}, lambda: None, as_json, NO)
