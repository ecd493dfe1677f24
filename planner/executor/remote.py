"""A run somewhere else: its files, one job of a launcher, its events followed, its report as of a run here."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.errors import RunFailed
from planner.executor.blame import run_failed
from planner.executor.checkpoint.checks import AUTO, check_checkpoints
from planner.executor.launch.exported import Exported, passed_environment
from planner.executor.launch.follow import Followed, OnStatus, first_words, follow, has_ended_badly
from planner.executor.launch.job import Launcher, LaunchJob, job_name, nodes_of
from planner.executor.launch.script import SCRIPT, write_script
from planner.executor.refuse import check_run
from planner.executor.request import SYNTHETIC, RunOptions, RunOrder
from planner.executor.run import check_adapter_folders
from planner.executor.weights.checks import check_weights
from planner.situation import Situation

MAX_COMMENT: Final = 200


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a run goes: the launcher, the job's name, processes of a node where they are not the cluster's."""

    launcher: Launcher
    name: str
    per_node: int | None = None
    on_status: OnStatus | None = None


def prepare(order: RunOrder, remote: Remote, folder: Path) -> LaunchJob:
    """Check the order, write it and its script into the folder; the job that runs them."""
    check_run(order, devices=order.world_size)
    order = replace(order, options=placed_options(order.options, remote.launcher))
    if remote.launcher.shares_files:
        check_checkpoints(order)
        check_weights(order)
        check_adapter_folders(order)
    num_nodes, each = nodes_of(order.situation.cluster, remote.per_node)
    write_script(order, folder, each)
    return LaunchJob(
        name=job_name(remote.name),
        folder=folder.resolve(),
        script=SCRIPT,
        num_nodes=num_nodes,
        per_node=each,
        on_cpu=_on_cpu(order.situation),
        restarts=order.options.restarts,
        comment=f"{order.situation.model.name}: {order.strategy.text()}"[:MAX_COMMENT],
        environment=_module_path() if remote.launcher.shares_files else {},
    )


def placed_options(options: RunOptions, launcher: Launcher) -> RunOptions:
    """Options whose paths hold where the job runs: from here on shared files, else in the job's own folder."""
    base = Path.cwd() if launcher.shares_files else Path(launcher.run_dir)
    changes: dict[str, object] = {}
    for key in (
        "checkpoint",
        "resume",
        "tokenizer",
        "data",
        "weights",
        "save_weights",
        "adapters",
        "adapters_from",
    ):
        stated = getattr(options, key)
        if stated and not _is_word(key, stated):
            changes[key] = str(base / stated)
    return options.model_copy(update=changes)


def _is_word(key: str, stated: str) -> bool:
    """Whether an option that may name a path names none."""
    return (key == "resume" and stated == AUTO) or (key == "data" and (stated == SYNTHETIC or ":" in stated))


def _module_path() -> dict[str, str]:
    """Where functions of the user's are found: where the command is started, as on one machine."""
    given = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(Path.cwd()), given)))}


def prepare_exported(situation: Situation, exported: Exported, remote: Remote) -> LaunchJob:
    """The job of a framework's own script on the plan's nodes."""
    num_nodes, each = nodes_of(situation.cluster, remote.per_node)
    return LaunchJob(
        name=job_name(remote.name),
        folder=exported.folder.resolve(),
        script=exported.script,
        num_nodes=num_nodes,
        per_node=each,
        on_cpu=_on_cpu(situation),
        comment=f"{situation.model.name}: {exported.script}"[:MAX_COMMENT],
        environment=passed_environment(),
    )


def start_remote(remote: Remote) -> Callable[[RunOrder, Path], None]:
    """What `run_order` calls instead of the launcher of this machine."""

    def start(order: RunOrder, folder: Path) -> None:
        try:
            follow_to_success(remote, prepare(order, remote, folder))
        except RunFailed as failure:
            raise run_failed(order, folder, failure.rank, failure.exit_code, failure.message) from None

    return start


def follow_to_success(remote: Remote, job: LaunchJob) -> Followed:
    """Follow a job to its end; raises RunFailed with its first words where it ends badly."""
    followed = follow(remote.launcher, job, remote.on_status)
    if has_ended_badly(followed.status):
        raise first_words(job, followed.status)
    return followed


def make_folder(folder: Path) -> Path:
    """The folder of a job, made where it is missing; it must lie where all nodes see it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"folder {str(folder)[:200]!r} cannot be written ({error.strerror}); give another --log-dir"
        ) from None
    return folder.resolve()


def _on_cpu(situation: Situation) -> bool:
    return situation.cluster.device.architecture == "cpu"
