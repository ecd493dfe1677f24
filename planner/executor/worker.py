"""One process of a run: `python -m planner.executor.worker ORDER.json RUN_DIR`, started by torch's elastic agent."""

import ctypes
import os
import signal
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner.executor.progress import Progress

USAGE: Final = (
    "a worker is one rank of a run: start all of them with the run.sh beside the order, or with torchrun -m "
    "planner.executor.worker ORDER.json RUN_DIR"
)
LAUNCHER_PID: Final = "PLANNER_LAUNCHER_PID"
REQUEUES: Final = "PLANNER_REQUEUES"
"""How often a launcher beyond this machine has started the whole job anew."""
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def die_with_launcher() -> None:
    """Let the kernel end this process when its parent dies; end now where the parent is already gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher and os.getppid() != int(launcher):
        os._exit(1)


def main(arguments: list[str]) -> None:
    """Run this rank to its end; an exception is left in the elastic agent's error file."""
    if len(arguments) != 2 or "RANK" not in os.environ:
        sys.stderr.write(f"{USAGE}\n")
        sys.exit(2)
    from torch.distributed.elastic.multiprocessing.errors import record

    order_path, run_dir = (Path(argument) for argument in arguments)
    code = 0
    try:
        record(_work)(order_path, run_dir)
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: threads of gloo that still run at the interpreter's end abort the process.
    os._exit(code)


def attempt() -> int:
    """How often the workers were started before: by the elastic agent, or with the whole job by its launcher."""
    within_job = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    most_in_job = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    return within_job + int(os.environ.get(REQUEUES) or "0") * (most_in_job + 1)


def _work(order_path: Path, run_dir: Path) -> None:
    from planner.executor.failures import RunStopped, failure_of, lasting_failure
    from planner.executor.progress import Progress

    before = lasting_failure(run_dir, attempt())
    if before is not None:
        replace(before, attempt=attempt()).write(run_dir)  # for the attempt after this one
        raise RunStopped(f"not tried again: {before.message}")
    progress = Progress(run_dir, int(os.environ.get("RANK", "0")), attempt())
    try:
        _train_or_verify(order_path, run_dir, progress)
    except Exception as error:
        failure_of(
            error, rank=progress.rank, attempt=attempt(), phase=progress.phase, step=progress.step
        ).write(run_dir)
        raise
    finally:
        progress.stop()


def _train_or_verify(order_path: Path, run_dir: Path, progress: "Progress") -> None:
    from planner.executor.request import read_order
    from planner.executor.session import train, verify

    order = read_order(order_path)
    run = verify if order.options.verify else train
    try:
        run(order, run_dir, progress)
    except SystemExit as stop:
        # The model's or the data's own code: it would look like a rank that ended well, or that said nothing.
        raise RuntimeError(
            f"the process was ended by sys.exit({stop.code!r}) in a function of the run; raise an exception that says "
            "why instead"
        ) from stop


if __name__ == "__main__":
    die_with_launcher()
    main(sys.argv[1:])
