"""What one rank does from joining the process group to leaving it: train and report, or verify."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from planner.executor.adapters.files import load_adapters, save_adapters
from planner.executor.blame import failure_before
from planner.executor.checkpoint.reader import Resumed, resume
from planner.executor.checkpoint.writer import CheckpointWriter, Written
from planner.executor.events import Event, EventWriter
from planner.executor.memory import MemoryMeter
from planner.executor.precision import compute_dtype
from planner.executor.profiling import Profiler
from planner.executor.progress import Progress
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.timeouts import set_timeouts, start_timeout_s, step_timeout_s
from planner.executor.training import Training
from planner.executor.verify import compare_with_one_process
from planner.executor.weights.loading import load_weights
from planner.executor.weights.saving import save_weights
from planner.executor.worker import LAUNCHER_PID, attempt


def train(order: RunOrder, run_dir: Path, progress: Progress) -> None:
    """Run the order's steps; rank 0 writes one event a step, one a checkpoint, and one at the end."""
    with process_group(order) as device, event_writer(run_dir) as writer:
        timeout_s = step_timeout_s(order)
        progress.start(timeout_s)
        progress.enter("build")
        meter = MemoryMeter(device, compute_dtype(order.situation.job.precision))
        trainer = Trainer(order, device)
        trainer.on_phase = progress.enter
        progress.enter("resume")
        resumed = resume(order, trainer, attempt())
        loaded = None
        if not resumed.path:
            progress.enter("weights")
            loaded = load_weights(order, trainer)
            load_adapters(order, trainer)
        set_timeouts(timeout_s)
        tell_beginning(writer, run_dir, resumed)
        if loaded is not None:
            tell(writer, loaded.to_event() | {"attempt": attempt()})
        keeper = keeper_of(order, trainer, writer)
        training = Training(order, trainer, keeper, meter, progress, partial(tell, writer))
        with Profiler(order, run_dir) as profiler:
            training.run(resumed.step, profiler)
        if order.options.save_weights:
            progress.enter("weights")
            tell(writer, save_weights(order, trainer).to_event() | {"attempt": attempt()})
        if order.options.adapters:
            progress.enter("weights")
            save_adapters(order, trainer)
        progress.enter("end")
        tell(
            writer,
            {
                "event": "end",
                "attempt": attempt(),
                "device": describe(device),
                "backend": dist.get_backend(),
                "torch": torch.__version__,
                "position": trainer.sampler.state(),
                "step": order.options.steps,
                "profiles": profiler.summaries(),
            },
        )


def tell_beginning(writer: EventWriter | None, run_dir: Path, resumed: Resumed) -> None:
    """Why an attempt before this one ended, and from which checkpoint this one goes on."""
    before = failure_before(run_dir, attempt()) if writer is not None else None
    if before is not None:
        told = asdict(before) | {"event": "restarted", "failed_attempt": before.attempt, "attempt": attempt()}
        tell(writer, told)
    if resumed.step or resumed.skipped:
        tell(writer, resumed.to_event() | {"attempt": attempt()})


def keeper_of(order: RunOrder, trainer: Trainer, writer: EventWriter | None) -> CheckpointWriter | None:
    """What writes the checkpoints that the options ask for; collective."""
    if not order.options.checkpoint:
        return None

    def told(written: Written) -> None:
        tell(writer, written.to_event() | {"attempt": attempt()})

    return CheckpointWriter(order, trainer, told)


def verify(order: RunOrder, run_dir: Path, progress: Progress) -> None:
    """Hold the layout on a small twin against one process; rank 0 writes the outcome."""
    with process_group(order) as device, event_writer(run_dir) as writer:
        progress.start(start_timeout_s(order))
        progress.enter("verify")
        outcome = compare_with_one_process(order, run_dir, device)
        values = {"loss": outcome.loss, "gradients": outcome.gradients, "parameters": outcome.parameters}
        more = {"steps": outcome.steps, "worst": dict(outcome.worst), "attempt": attempt()}
        tell(writer, {"event": "verified", **values, **more})


@contextmanager
def process_group(order: RunOrder) -> Iterator[torch.device]:
    """The default process group; its device is this rank's GPU, or the CPU."""
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    else:
        device = torch.device("cpu")
    backend = "nccl" if device.type == "cuda" else "gloo"
    device_id = device if device.type == "cuda" else None
    timeout = timedelta(seconds=start_timeout_s(order))
    store = store_of_attempt(timeout)
    rank, world = (-1, -1) if store is None else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, timeout=timeout, device_id=device_id
    )
    yield device
    # Only a rank that succeeded: the others' failure must not wait for a barrier.
    dist.barrier()
    dist.destroy_process_group()


def store_of_attempt(timeout: timedelta) -> Store | None:
    """Where the ranks of this attempt meet; None where torch makes a place of their own for them.

    The elastic agent's store outlives its workers: without a prefix a restarted rank may find the address of a process
    that is gone, and wait for it.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != str(True):
        return None
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    world = int(os.environ["WORLD_SIZE"])
    shared = TCPStore(address, port, world, is_master=False, timeout=timeout)
    return PrefixStore(f"attempt-{attempt()}", shared)


@contextmanager
def event_writer(run_dir: Path) -> Iterator[EventWriter | None]:
    """The writer of rank 0, none on the others; what a script started shows its events itself."""
    if dist.get_rank() != 0:
        yield None
        return
    copy = None if LAUNCHER_PID in os.environ else sys.stdout
    writer = EventWriter(run_dir, attempt=attempt(), copy=copy)
    try:
        yield writer
    finally:
        writer.close()


def tell(writer: EventWriter | None, event: Event) -> None:
    """Write an event where this rank has a writer."""
    if writer is not None:
        writer.write(event)


def describe(device: torch.device) -> str:
    """The device's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
