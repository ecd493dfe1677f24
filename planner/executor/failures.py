"""What ended a run: which rank, in which step and phase, of which kind, and whether to try again. Needs no torch.

A rank leaves its failure in the run's folder; the launcher finds the first of an attempt there.
"""

import errno
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.units import format_bytes

FOLDER: Final = "failures"
LOSS: Final = "loss_not_finite"
DISK: Final = "disk_full"
DATA: Final = "data_exhausted"
MEMORY: Final = "out_of_memory"
HUNG: Final = "hung"
TIMEOUT: Final = "timeout"
LOST: Final = "lost"
KILLED: Final = "killed"
CONSEQUENCES: Final = (TIMEOUT, LOST)
"""Kinds of ranks that only missed another."""
INPUT: Final = "bad_input"
ERROR: Final = "error"
LASTING: Final = (LOSS, DISK, DATA, MEMORY, INPUT)
"""Kinds that come again when the same is tried again, so a run is not restarted after them."""
DISK_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MEMORY_WORDS: Final = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
)
# torch's writer notices that fewer bytes were written than it gave, and forgets why.
DISK_WORDS: Final = (
    *(os.strerror(number).lower() for number in DISK_ERRNOS),
    "unexpected pos",
    "file write failed",
)
TIMEOUT_WORDS: Final = ("timed out", "timeout")
LOST_WORDS: Final = (
    "closed by peer",
    "reset by peer",
    "broken pipe",
    "socket closed",
    "remote process exited",
    "recvvalue failed",
    "sendbytes failed",
    "failed to recv",
)
"""What gloo, NCCL and the store say where another process is gone."""
MAX_MESSAGE: Final = 2000


class RunStopped(Exception):
    """A run that cannot go on; `kind` says why."""

    kind: str = ERROR


class LossNotFinite(RunStopped):
    """Training on would only spoil the weights."""

    kind = LOSS

    def __init__(self, step: int, loss: float, grad_norm: float) -> None:
        what = f"the loss is {loss}" if loss - loss else f"the gradient norm is {grad_norm}"
        super().__init__(
            f"{what} in step {step:,}; lower --lr, or look at the data and the model (loss {loss:.5g}, gradient norm "
            f"{grad_norm:.5g})"
        )


class DataExhausted(RunStopped):
    """There are fewer samples than the steps need."""

    kind = DATA


class CheckpointFailed(RunStopped):
    """A checkpoint that could not be written."""

    def __init__(self, step: int, path: str, cause: BaseException, rank: int) -> None:
        self.kind = kind_of(cause)
        what = " ".join(str(getattr(cause, "strerror", "") or cause).split())[:300]
        if self.kind == DISK:
            what += f"; {_free_text(path)}; free some space, or keep fewer with --keep"
        super().__init__(f"the checkpoint of step {step:,} at {path} could not be written: {what}")
        self.rank = rank


class WeightsFailed(RunStopped):
    """Weights that could not be written."""

    def __init__(self, path: str, cause: OSError, rank: int) -> None:
        self.kind = kind_of(cause)
        what = " ".join(str(cause.strerror or cause).split())[:300]
        if self.kind == DISK:
            what += f"; {_free_text(path)}; free some space, and run again with --resume auto"
        super().__init__(f"the weights could not be written to {path}: {what}")
        self.rank = rank


@dataclass(frozen=True, slots=True)
class Failure:
    """How one rank failed."""

    rank: int
    attempt: int
    kind: str
    phase: str
    step: int
    message: str
    time_s: float = 0.0
    """Seconds since 1970."""

    def write(self, run_dir: Path) -> None:
        """Leave it for the launcher; a disk that is full is no reason to fail differently."""
        folder = run_dir / FOLDER
        name = f"attempt-{self.attempt:06d}-rank-{self.rank}.json"
        try:
            folder.mkdir(exist_ok=True)
            partial = folder / f".{name}"
            partial.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
            partial.rename(folder / name)
        except OSError:
            return


def failure_of(error: BaseException, *, rank: int, attempt: int, phase: str, step: int) -> Failure:
    """An exception as a failure; one of a checkpoint's writing is the rank's that could not write."""
    message = str(error)[:MAX_MESSAGE] or type(error).__name__
    if kind_of(error) == ERROR:
        message = f"{type(error).__name__}: {message}"
    return Failure(getattr(error, "rank", rank), attempt, kind_of(error), phase, step, message, time.time())


def kind_of(error: BaseException) -> str:
    """Which kind of failure an exception is."""
    if isinstance(error, RunStopped):
        return error.kind
    if isinstance(error, BadInput):
        return INPUT
    return _kind_of_words(error)


def _kind_of_words(error: BaseException) -> str:
    """By number and words of what the system or torch said."""
    number, text = getattr(error, "errno", None), str(error).lower()
    # torch raises plain RuntimeErrors for what the system refuses it.
    refused = text if isinstance(error, RuntimeError) else ""
    if isinstance(error, MemoryError) or number == errno.ENOMEM or _has(refused, MEMORY_WORDS):
        return MEMORY
    if number in DISK_ERRNOS or _has(refused, DISK_WORDS):
        return DISK
    if _has(text, LOST_WORDS):
        return LOST
    return TIMEOUT if _has(text, TIMEOUT_WORDS) else ERROR


def _free_text(path: str) -> str:
    try:
        return f"{format_bytes(shutil.disk_usage(Path(path).parent).free)} are free there"
    except OSError:
        return "the folder is gone"


def _has(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def read_failures(run_dir: Path) -> Iterator[Failure]:
    """All failures that ranks left, in the order in which they happened."""
    found = [_read(path) for path in (run_dir / FOLDER).glob("attempt-*.json")]
    yield from sorted((each for each in found if each is not None), key=lambda each: each.time_s)


def first_failure_of(run_dir: Path, attempt: int | None = None) -> Failure | None:
    """What came first in an attempt (None: the last one that failed); a rank that only missed another is not blamed."""
    found = list(read_failures(run_dir))
    if attempt is None:
        attempt = max((each.attempt for each in found), default=0)
    own = [each for each in found if each.attempt == attempt]
    return next((each for each in own if each.kind not in CONSEQUENCES), own[0] if own else None)


def lasting_failure(run_dir: Path, attempt: int) -> Failure | None:
    """The failure of the attempt before this one that would only come again."""
    before = first_failure_of(run_dir, attempt - 1) if attempt else None
    return before if before is not None and before.kind in LASTING else None


def _read(path: Path) -> Failure | None:
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Failure(**{each.name: document[each.name] for each in fields(Failure)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def exhausted_text(what: str, samples: int, epochs: int) -> str:
    """That so many samples were all there are."""
    passes = "" if epochs == 1 else f" in {epochs:,} passes"
    return f"{what} end after {samples:,}{passes}; give more data, more --epochs, or fewer --steps"
