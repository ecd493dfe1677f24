"""A worker that does as its run folder's file `mode` says; started by launch_local in tests."""

import os
import signal
import sys
import time
from pathlib import Path

from planner.executor.worker import die_with_launcher


def main(run_dir: Path) -> None:
    """`ok` ends well, `raise`, `exit` and `kill` end rank 1 badly, `once` fails in the first attempt, `sleep` waits."""
    from torch.distributed.elastic.multiprocessing.errors import record

    record(act)(run_dir, (run_dir / "mode").read_text(), int(os.environ["RANK"]))


def act(run_dir: Path, mode: str, rank: int) -> None:
    """What this rank does."""
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    (run_dir / f"rank{rank}-{attempt}-{os.environ['OMP_NUM_THREADS']}").touch()
    if mode == "sleep" or (rank != 1 and mode in ("raise", "exit", "kill")):
        time.sleep(60)
    if mode == "raise":
        raise ValueError("a message of rank 1")
    if mode == "exit":
        sys.stderr.write("last words of rank 1\n")
        sys.exit(7)
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "once" and attempt == "0":
        sys.exit(3)


if __name__ == "__main__":
    die_with_launcher()
    main(Path(sys.argv[2]))
