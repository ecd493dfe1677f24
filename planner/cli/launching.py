"""`planner run` beyond this machine: options of launchers, jobs that are followed or left alone, dry runs."""

import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cost_models.errors import BadInput
from planner.cli.answer import NO, YES, Answer

if TYPE_CHECKING:
    from planner.executor.launch.exported import Exported
    from planner.executor.launch.job import JobStatus, LaunchJob
    from planner.executor.remote import Remote
    from planner.executor.request import RunOrder
    from planner.formats.export import PlannedRun

FOLDER: Final = "planner-runs"
ENGINES_OF_THE_EXECUTOR: Final = ("torch", "ddp", "fsdp2", "parameter_server")


def is_launched(given: Mapping[str, Any]) -> bool:
    """Whether the run goes beyond the executor of this machine."""
    launcher: str = given["launcher"]
    return launcher != "local"


def remote_of(given: Mapping[str, Any], model: str) -> "Remote":
    """Where the run goes; the job's name is unique unless the user gave one."""
    from planner.executor.launch.registry import make_launcher, settings_of
    from planner.executor.remote import Remote

    launcher = make_launcher(given["launcher"], settings_of(given["launch"]), check=not given["dry_run"])
    name = given["name"] or f"{model[:12]}-{time.strftime('%m%d%H%M')}-{secrets.token_hex(3)}"
    return Remote(launcher, name, given["nproc"], _reporter(given))


def folder_of(given: Mapping[str, Any], remote: "Remote") -> Path:
    """The job's folder: --log-dir, the one of a dry run, or planner-runs/NAME where the command is started."""
    from planner.executor.launch.job import job_name
    from planner.executor.remote import make_folder

    stated = given["output"] or given["log_dir"] or f"{FOLDER}/{job_name(remote.name)}"
    return make_folder(Path(stated))


def check_launch_options(given: Mapping[str, Any]) -> None:
    """Refuse options that belong to a launcher beyond this machine without one."""
    if is_launched(given):
        return
    for key in ("launch", "name", "detach", "cancel"):
        if given[key]:
            raise BadInput(
                f"--{key} is for --launcher slurm or kubernetes; leave it out, or name one of them"
            )


def cancel_job(given: Mapping[str, Any]) -> Answer:
    """End the job of a name; yes also where there is none, or it is over."""
    from planner.executor.launch.follow import cancel_and_wait
    from planner.executor.launch.job import LaunchJob, job_name

    if not given["name"]:
        raise BadInput("--cancel ends the job of a name; give it with --name NAME")
    remote = remote_of(given, "")
    job = LaunchJob(job_name(remote.name), Path(given["log_dir"] or ".").resolve(), "", 1, 1, True)
    job_id = remote.launcher.find(job)
    phase = cancel_and_wait(remote.launcher, job, job_id).phase.value if job_id else None
    payload = {"job_id": job_id, "name": job.name, "phase": phase}
    words = f"job {job_id} ({job.name}) has {phase}" if job_id else f"there is no job {job.name}"
    return Answer(payload, lambda: click.echo(words), given["as_json"])


def launch_order(order: "RunOrder", given: Mapping[str, Any]) -> "Answer | tuple[Remote, Path]":
    """A dry run's or a detached job's answer; else what `run_order` needs to follow the job."""
    from planner.executor.launch.follow import forget_other_job
    from planner.executor.launch.job import job_name
    from planner.executor.remote import prepare

    remote = remote_of(given, order.situation.model.name)
    folder = folder_of(given, remote)
    if given["dry_run"]:
        job = prepare(order, remote, folder)
        files = (folder / "order.json", folder / job.script, *remote.launcher.write(job))
        return dry_answer(files, order.strategy.to_json(), given["as_json"])
    forget_other_job(folder, job_name(remote.name))
    if given["detach"]:
        return _submitted(remote, prepare(order, remote, folder), given["as_json"])
    return remote, folder


def launch_exported(run: "PlannedRun", given: Mapping[str, Any]) -> Answer:
    """The plan of another engine through its own script: here, or as a job of a launcher."""
    from planner.executor.launch import exported as scripts

    if not is_launched(given):
        return _run_here(run, given)
    from planner.executor.remote import follow_to_success, prepare_exported

    remote = remote_of(given, run.model.name)
    folder = folder_of(given, remote)
    script = (
        scripts.script_of(Path(given["script"])) if given["script"] else scripts.export_script(run, folder)
    )
    job = prepare_exported(run.situation, script, remote)
    if given["dry_run"]:
        files = (job.folder / job.script, *remote.launcher.write(job))
        return dry_answer(files, run.strategy.to_json(), given["as_json"])
    _tell_losses(script)
    if given["detach"]:
        return _submitted(remote, job, given["as_json"])
    followed = follow_to_success(remote, job)
    payload = {"ran": True, "job_id": followed.job_id, "folder": str(job.folder), "script": job.script}
    return Answer(
        payload,
        lambda: click.echo(f"job {followed.job_id} ended well; logs in {job.folder}/logs"),
        given["as_json"],
    )


def dry_answer(files: tuple[Path, ...], strategy: Mapping[str, object], as_json: bool) -> Answer:
    """What a dry run wrote."""
    payload = {"dry_run": True, "files": [str(path) for path in files], "strategy": dict(strategy)}

    def show() -> None:
        click.echo("wrote " + ", ".join(str(path) for path in files) + "; nothing was started")

    return Answer(payload, show, as_json)


def _run_here(run: "PlannedRun", given: Mapping[str, Any]) -> Answer:
    """One machine: the framework must be installed."""
    from planner.executor.launch import exported as scripts
    from planner.executor.remote import make_folder

    if not given["script"] and not given["dry_run"]:
        scripts.check_framework(run.situation)
    if given["script"]:
        script = scripts.script_of(Path(given["script"]))
    else:
        folder = make_folder(Path(given["output"] or given["log_dir"] or FOLDER))
        script = scripts.export_script(run, folder)
    if given["dry_run"]:
        return dry_answer((script.folder / script.script,), run.strategy.to_json(), given["as_json"])
    _tell_losses(script)
    code = scripts.run_here(script)
    payload = {"ran": code == 0, "exit_code": code, "folder": str(script.folder), "script": script.script}
    words = f"{script.script} ended with exit code {code}"
    return Answer(payload, lambda: click.echo(words), given["as_json"], NO if code else YES)


def _submitted(remote: "Remote", job: "LaunchJob", as_json: bool) -> Answer:
    from planner.executor.launch.follow import submit_once

    job_id = submit_once(remote.launcher, job)
    payload = {"submitted": True, "job_id": job_id, "name": job.name, "folder": str(job.folder)}
    again = f"follow it with the same command, --name {remote.name} and --log-dir {job.folder}"
    return Answer(payload, lambda: click.echo(f"submitted job {job_id} ({job.name}); {again}"), as_json)


def _tell_losses(script: "Exported") -> None:
    for loss in script.losses:
        sys.stderr.write(f"planner: not said by the script: {loss}\n")


def _reporter(given: Mapping[str, Any]) -> Any:
    """A line on standard error whenever the job's state changes."""
    from planner.executor.launch.follow import status_line

    def tell(job_id: str, status: "JobStatus") -> None:
        if given["progress"] == "jsonl":
            import json

            sys.stderr.write(json.dumps(status_line(job_id, status)) + "\n")
        elif not given["as_json"]:
            nodes = f" on {', '.join(status.nodes[:8])}" if status.nodes else ""
            sys.stderr.write(f"job {job_id}: {status.phase.value}{nodes} {asdict(status)['reason']}\n")

    return tell
