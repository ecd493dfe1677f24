"""Runs a function on several gloo processes: `run_ranks(function, world, *args)` gives one result per rank.

`function(rank, world, *args)` is a module-level function of an importable test module; the default process group
is there when it is called. Processes are forked from a server that has torch imported, so that starting one costs
milliseconds; whatever happens, none is left afterwards.
"""

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, Final

import torch
import torch.distributed as dist

TIMEOUT_S: Final = 60.0
SETTLE_S: Final = 0.3
# Imports no test module: those may hold what is not importable twice.
PRELOAD: Final = [
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.distributed.pipelining",
    "torch.distributed.device_mesh",
]

_CONTEXT: Final = multiprocessing.get_context("forkserver")


class RankError(Exception):
    """A rank failed; the message carries its traceback."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank} failed:\n{text}")
        self.rank = rank


def run_ranks(
    function: Callable[..., Any], world: int, *args: Any, timeout_s: float = TIMEOUT_S
) -> list[Any]:
    """Results of `function(rank, world, *args)` on every rank; raises RankError with the first traceback."""
    _CONTEXT.set_forkserver_preload(PRELOAD)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes, pipes = [], []
    try:
        for rank in range(world):
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            work = (function, rank, world, store.port, timeout_s, sender, args)
            process = _CONTEXT.Process(target=_rank, args=work, daemon=True)
            process.start()
            sender.close()
            processes.append(process)
            pipes.append(receiver)
        return _results(pipes, timeout_s)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()
        for pipe in pipes:
            pipe.close()


def _results(pipes: Sequence[Connection], timeout_s: float) -> list[Any]:
    """One message of every rank, or the first failure."""
    deadline = time.monotonic() + timeout_s
    results: dict[int, Any] = {}
    failures: dict[int, str] = {}
    while len(results) + len(failures) < len(pipes):
        open_pipes = [pipe for rank, pipe in enumerate(pipes) if rank not in results | failures]
        ready = wait(open_pipes, timeout=max(deadline - time.monotonic(), 0.0))
        if not ready:
            break
        for pipe in ready:
            rank = next(index for index, each in enumerate(pipes) if each is pipe)
            failed, content = _receive(pipe)
            (failures if failed else results)[rank] = content
        # A failure makes its peers fail a moment later; wait for those, so that the cause can be told apart.
        deadline = min(deadline, time.monotonic() + SETTLE_S) if failures else deadline
    if failures:
        raise RankError(*min(failures.items(), key=lambda item: _is_consequence(item[1])))
    missing = [rank for rank in range(len(pipes)) if rank not in results]
    if missing:
        raise RankError(missing[0], f"no result of ranks {missing} within {timeout_s:.0f} s")
    return [results[rank] for rank in range(len(pipes))]


def _is_consequence(text: str) -> bool:
    """Whether a failure looks like that of a rank whose peer was gone."""
    return "onnection" in text or "peer" in text


def _receive(pipe: Connection) -> tuple[bool, Any]:
    try:
        failed, content = pickle.loads(pipe.recv_bytes())
    except EOFError:
        return True, "the process ended without a result (killed, or out of memory)"
    return failed, content


def _rank(
    function: Callable[..., Any],
    rank: int,
    world: int,
    port: int,
    timeout_s: float,
    sender: Connection,
    args: tuple[Any, ...],
) -> None:
    """One process: joins the group, calls the function, sends what came of it."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
    timeout = timedelta(seconds=timeout_s)
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
        message = (False, function(rank, world, *args))
        content = pickle.dumps(message)
        dist.barrier()
    except BaseException:
        content = pickle.dumps((True, traceback.format_exc()))
    sender.send_bytes(content)
    sender.close()
    # Skips what torch would tear down at exit: the parent has the result, and peers may already be gone.
    os._exit(0)
