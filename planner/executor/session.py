"""What one rank does from joining the process group to leaving it: train and report, or verify."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.events import Event, EventWriter
from planner.executor.memory import MemoryMeter, MemorySample
from planner.executor.precision import compute_dtype
from planner.executor.profiling import Profiler
from planner.executor.report import StepRecord
from planner.executor.request import RunOrder
from planner.executor.step import StepResult, Trainer
from planner.executor.timeouts import set_timeouts, start_timeout_s, step_timeout_s
from planner.executor.torch_names import GATHER
from planner.executor.verify import compare_with_one_process
from planner.executor.worker import LAUNCHER_PID, REQUEUES


def train(order: RunOrder, run_dir: Path) -> None:
    """Run the order's steps; rank 0 writes one event a step and one at the end."""
    with process_group(order) as device, event_writer(run_dir) as writer:
        meter = MemoryMeter(device, compute_dtype(order.situation.job.precision))
        trainer = Trainer(order, device)
        set_timeouts(step_timeout_s(order))
        with Profiler(order, run_dir) as profiler:
            for step in range(1, order.options.steps + 1):
                meter.reset()
                profiler.start_step()
                result = trainer.train_step()
                profiler.end_step()
                record = gather_step(step, result, meter.sample(), device)
                tell(writer, record.to_event() | {"attempt": attempt(), "unit": order.unit})
        tell(
            writer,
            {
                "event": "end",
                "attempt": attempt(),
                "device": describe(device),
                "backend": dist.get_backend(),
                "torch": torch.__version__,
                "position": trainer.sampler.state(),
                "profiles": profiler.summaries(),
            },
        )


def verify(order: RunOrder, run_dir: Path) -> None:
    """Hold the layout on a small twin against one process; rank 0 writes the outcome."""
    with process_group(order) as device, event_writer(run_dir) as writer:
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
    dist.init_process_group(backend, timeout=timedelta(seconds=start_timeout_s(order)), device_id=device_id)
    yield device
    # Only a rank that succeeded: the others' failure must not wait for a barrier.
    dist.barrier()
    dist.destroy_process_group()


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


def attempt() -> int:
    """How often the workers were started before: by the elastic agent, or with the whole job by its launcher."""
    within_job = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    most_in_job = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    return within_job + int(os.environ.get(REQUEUES) or "0") * (most_in_job + 1)


def describe(device: torch.device) -> str:
    """The device's name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def gather_step(step: int, result: StepResult, memory: MemorySample, device: torch.device) -> StepRecord:
    """One record of all ranks' seconds and bytes; collective."""
    own = [result.step_s, memory.allocated_bytes, memory.reserved_bytes, result.processor_s]
    rows = all_rows(torch.tensor(own, dtype=torch.float64, device=device))
    return StepRecord(
        step=step,
        step_s=max(row[0] for row in rows),
        loss=result.loss,
        grad_norm=result.grad_norm,
        lr=result.lr,
        tokens=result.tokens,
        memory_bytes=tuple(row[1] for row in rows),
        reserved_bytes=tuple(row[2] for row in rows),
        processor_s=tuple(row[3] for row in rows),
    )


def all_rows(own: Tensor) -> list[list[float]]:
    """The row of every rank; collective."""
    rows = own.new_empty(dist.get_world_size() * own.numel())
    GATHER(rows, own)
    found: list[list[float]] = rows.view(-1, own.numel()).tolist()
    return found
