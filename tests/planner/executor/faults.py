"""Data functions and modules that make a rank fail in one way or another, for runs of real processes."""

import os
import resource
import signal
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

SEQUENCE = 17
LAST_GOOD_STEP = 4
BATCH = 8


def _is_here(rank: int, attempt: int = 0) -> bool:
    return os.environ["RANK"] == str(rank) and os.environ["TORCHELASTIC_RESTART_COUNT"] == str(attempt)


def _samples() -> Iterator[tuple[int, list[int]]]:
    """Samples of rising tokens without end, with the step that each belongs to."""
    index = 0
    while True:
        yield index // BATCH + 1, [(index + place) % 128 for place in range(SEQUENCE)]
        index += 1


def hangs() -> Iterator[list[int]]:
    """Rank 1 never gets its samples of the step after the last good one."""
    for step, sample in _samples():
        if step > LAST_GOOD_STEP and _is_here(1):
            time.sleep(600)
        yield sample


def stops() -> Iterator[list[int]]:
    """Rank 1 is stopped by the system."""
    for step, sample in _samples():
        if step > LAST_GOOD_STEP and _is_here(1):
            os.kill(os.getpid(), signal.SIGSTOP)
        yield sample


def kills_twice() -> Iterator[list[int]]:
    """Rank 1 is killed in the fifth step, and in the next attempt rank 0 in the eighth."""
    for step, sample in _samples():
        if (step == 5 and _is_here(1, 0)) or (step == 8 and _is_here(0, 1)):
            os.kill(os.getpid(), signal.SIGKILL)
        yield sample


def leaves() -> Iterator[list[int]]:
    """The function ends the process, as if all were well."""
    for step, sample in _samples():
        if step > LAST_GOOD_STEP:
            raise SystemExit(0)
        yield sample


def quiet() -> Iterator[list[int]]:
    """The same samples without a fault."""
    for _, sample in _samples():
        yield sample


def ends() -> Iterator[list[int]]:
    """Samples of four and a half steps."""
    for step, sample in _samples():
        if step > LAST_GOOD_STEP + 1:
            return
        if step <= LAST_GOOD_STEP or sample[0] % BATCH < BATCH // 2:
            yield sample


def fills_the_disk() -> Iterator[list[int]]:
    """Files may not grow when the fourth step's checkpoint is due: as on a full disk, but for the error's number."""
    for step, sample in _samples():
        if step == LAST_GOOD_STEP:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        yield sample


class Hungry(nn.Module):
    """A small language model that runs out of memory in the fifth step."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(128, 16)
        self.head = nn.Linear(16, 128)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        self.calls += 1
        if self.calls > LAST_GOOD_STEP * BATCH:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        logits: Tensor = self.head(self.table(x))
        return logits


def hungry() -> nn.Module:
    """A factory of it."""
    return Hungry()
