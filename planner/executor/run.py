"""Runs an order from its check to its report: refuse, launch, follow, compare. The story of this package."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.errors import RunFailed
from planner.evaluation import evaluate
from planner.executor import failures, progress
from planner.executor.checkpoint.checks import check_checkpoints
from planner.executor.events import EVENTS_FILE, Event, EventReader
from planner.executor.refuse import check_run, has_torch
from planner.executor.report import RunReport, step_of_event
from planner.executor.request import RunOptions, RunOrder, order_of_plan
from planner.executor.verification import COMPARABLE, Verification, verification_of_event
from planner.executor.versions import check_torch
from planner.executor.weights.checks import check_weights
from planner.plan_file import PlanFile

OnEvent = Callable[[Event], None]
Start = Callable[[RunOrder, Path], None]
"""Runs an order in a folder to its end; raises RunFailed. None stands for the processes of this machine."""

FOLDER_PREFIX: Final = "planner-run-"
ORDER_FILE: Final = "order.json"
TOLD: Final = ("restarted", "resumed", "checkpoint", "weights", "saved")
SUBMITTED_FILE: Final = "job.json"
"""Left in a run's folder by a launcher beyond this machine."""


def run_plan(plan: PlanFile, options: RunOptions, on_event: OnEvent | None = None) -> RunReport:
    """Train with a plan's best strategy on this machine, and compare with its prediction.

    Raises IllegalStrategy (before anything is launched) for what would not run as planned, RunFailed where a rank
    fails. Called from a script, it needs the usual `if __name__ == "__main__":` of no kind: workers are processes of
    their own. In the main thread, SIGINT and SIGTERM end the run and every worker.
    """
    return run_order(order_of_plan(plan, options), on_event)


def run_order(order: RunOrder, on_event: OnEvent | None = None, start: Start | None = None) -> RunReport:
    """As `run_plan`, for an order put together by the caller; `start` runs it elsewhere."""
    events = _launch(order, on_event, start)
    attempt = max(event.get("attempt", 0) for event in events)
    # A restart goes on from a checkpoint, and takes again the steps after it.
    last = {event["step"]: event for event in events if event["event"] == "step"}
    steps = tuple(step_of_event(last[step]) for step in sorted(last))
    end = [event for event in events if event["event"] == "end"][-1]
    told = tuple(event for event in events if event["event"] in TOLD)
    return RunReport(order, steps, evaluate(order.situation, order.strategy), end, attempt + 1, told)


def verify_order(
    order: RunOrder, on_event: OnEvent | None = None, start: Start | None = None
) -> Verification:
    """Hold the order's layout, on a small twin of its model, against one process."""
    checked = order.options.model_copy(update=COMPARABLE)
    events = _launch(RunOrder(order.situation, order.strategy, checked), on_event, start)
    return verification_of_event(next(event for event in events if event["event"] == "verified"))


def _launch(order: RunOrder, on_event: OnEvent | None, start: Start | None) -> Sequence[Event]:
    """All events of the run."""
    begin = start or _start_here
    if start is None:
        check_torch()
        check_run(order)
        check_checkpoints(order)
        check_weights(order)
        check_adapter_folders(order)
    with _run_folder(order.options.log_dir) as folder, EventReader(folder, on_event) as reader:
        begin(order, folder)
    if not any(event["event"] in ("end", "verified") for event in reader.events):
        raise RunFailed(0, 0, "the workers ended without a report")
    return reader.events


def check_adapter_folders(order: RunOrder) -> None:
    """Raise BadInput for folders of adapters that cannot be used, where torch is here to read them."""
    if has_torch() and (order.options.adapters or order.options.adapters_from):
        from planner.executor.adapters.files import check_adapters

        check_adapters(order)


def _start_here(order: RunOrder, folder: Path) -> None:
    from planner.executor.launch import launch_local

    order_path = folder / ORDER_FILE
    order.write(order_path)
    launch_local(order, order_path, folder)


@contextmanager
def _run_folder(log_dir: str) -> Iterator[Path]:
    """The folder of one run: the user's, kept, or a temporary one that is removed.

    A launcher that was killed cannot remove its own; the next run removes it.
    """
    if log_dir:
        yield _users_folder(Path(log_dir))
        return
    remove_stale_folders(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _users_folder(folder: Path) -> Path:
    """The folder made where it is missing, without the events of a run before; raises BadInput if that fails.

    Those of a job that was submitted from it stay: it is followed again.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / SUBMITTED_FILE).exists():
            (folder / EVENTS_FILE).unlink(missing_ok=True)
            # What ranks of a run before left of their failures is not of this one.
            for name in (failures.FOLDER, progress.FOLDER):
                shutil.rmtree(folder / name, ignore_errors=True)
        (folder / EVENTS_FILE).touch()
    except OSError as error:
        raise BadInput(
            f"log folder {str(folder)[:200]!r} cannot be written ({error.strerror}); give another --log-dir"
        ) from None
    return folder


def remove_stale_folders(parent: Path) -> None:
    """Remove run folders of this user whose launcher is gone."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*-*"):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        try:
            is_own = folder.stat().st_uid == os.getuid()
        except OSError:  # another run removed it meanwhile
            continue
        if is_own and owner.isdigit() and not _is_running(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
