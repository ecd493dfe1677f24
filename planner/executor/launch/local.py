"""Starts one process per rank on this machine through torch's elastic agent, and ends them whatever happens.

Every worker is a session of its own that the agent signals as a group, and asks the kernel to be killed when the
launcher dies (worker.py), so that neither a killed launcher nor a closed terminal leaves a process behind.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from planner.errors import RunFailed
from planner.executor.blame import run_failed
from planner.executor.launch.environment import WORKER_MODULE, worker_environment
from planner.executor.refuse import count_devices
from planner.executor.request import RunOrder

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

SHUTDOWN_S: Final = 5
"""Seconds between asking a worker to end and killing it."""
MONITOR_S: Final = 0.1
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
KILLING: Final = (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
"""Exit codes of ranks that others end; the agent itself ends the rest with SIGTERM."""
MAX_MESSAGE: Final = 2000


def launch_local(order: RunOrder, order_path: Path, run_dir: Path, worker: str = WORKER_MODULE) -> None:
    """Run the workers to their end; raises RunFailed naming the first rank that failed.

    SIGINT becomes KeyboardInterrupt, SIGTERM, SIGHUP and SIGQUIT become SystemExit with 128 + the signal, in each
    case after every worker has ended.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    _quieten()
    config = _config(order, run_dir)
    environment = worker_environment(order, on_cpu=not count_devices())
    with _environment(environment), _signals_restored():
        try:
            elastic_launch(config, sys.executable)("-m", worker, str(order_path), str(run_dir))
        except ChildFailedError as error:
            raise first_failure(error, order, run_dir) from None
        except SignalException as caught:
            if caught.sigval is signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + caught.sigval) from None


def first_failure(error: "ChildFailedError", order: RunOrder, run_dir: Path) -> RunFailed:
    """The first failure of an elastic run: a rank that was killed comes before those that missed it."""
    killed = [each for each in error.failures.items() if each[1].exitcode in KILLING]
    rank, failure = killed[0] if killed else error.get_first_failure()
    message = failure.message
    text = str(message.get("message", message)) if isinstance(message, Mapping) else str(message)
    if failure.error_file == "<N/A>":
        text = _last_words(run_dir, rank) or text
    return run_failed(order, run_dir, int(rank), int(failure.exitcode), text[:MAX_MESSAGE])


def _config(order: RunOrder, run_dir: Path) -> Any:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=order.world_size,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # the name need not be known, as in a bare container
        max_restarts=order.options.restarts,
        monitor_interval=MONITOR_S,
        local_addr="127.0.0.1",
        logs_specs=DefaultLogsSpecs(log_dir=str(run_dir / "logs"), redirects=Std.ALL),
        signals_to_handle=",".join(each.name for each in SIGNALS),
        shutdown_timeout=SHUTDOWN_S,
    )


def _last_words(run_dir: Path, rank: int) -> str:
    """The last line that a rank wrote to standard error, where it left no error file."""
    files = sorted(run_dir.glob(f"logs/*/attempt_*/{rank}/stderr.log"), key=lambda path: path.stat().st_mtime)
    lines = files[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines() if files else []
    return lines[-1] if lines else ""


def _quieten() -> None:
    """No log lines of the elastic agent among ours: what it knows is in RunFailed."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """These environment variables, for as long as the workers run."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def _signals_restored() -> Iterator[None]:
    """Signal handlers as they were: the elastic agent sets its own. Does nothing outside the main thread."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            try:
                signal.signal(each, handler if handler is not None else signal.SIG_DFL)
            except ValueError:  # not the main thread, so nothing was changed
                return
