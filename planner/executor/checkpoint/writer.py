"""Writes checkpoints beside training: a copy of the rank's state is taken, and a thread writes it.

The thread's collectives have a process group of their own. A checkpoint exists once its folder has its name: after
every rank's files are on the disk, their checksums in the manifest, and the manifest on the disk.
"""

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException

from planner.executor.checkpoint.facts import facts_of
from planner.executor.checkpoint.pieces import Piece, RankState
from planner.executor.checkpoint.planners import PieceWriter
from planner.executor.checkpoint.store import (
    Manifest,
    StoredFile,
    commit,
    file_of,
    folder_of,
    prune,
    remove_left_behind,
)
from planner.executor.failures import CheckpointFailed
from planner.executor.request import RunOrder
from planner.executor.step import Trainer

WRITE_TIMEOUT_S: Final = 1800.0
"""How far apart ranks may be with their files."""
GRACE_S: Final = 10.0
"""Other ranks' threads go on writing as long as they wait for this rank."""


@dataclass(frozen=True, slots=True)
class Written:
    """A checkpoint that is complete."""

    step: int
    path: Path
    num_bytes: int
    seconds: float
    """From the step's end until it was complete."""
    blocked_s: float
    """Of these, how long training stood still."""

    def to_event(self) -> dict[str, object]:
        """A line of the run's events."""
        return {
            "event": "checkpoint",
            "step": self.step,
            "path": str(self.path),
            "bytes": self.num_bytes,
            "seconds": self.seconds,
            "blocked_s": self.blocked_s,
        }


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One step's state in the host's memory."""

    step: int
    next_sample: int
    pieces: tuple[Piece, ...]
    started: float
    blocked_s: float


class CheckpointWriter:
    """Writes checkpoints of a trainer into a folder; all ranks make and call it alike."""

    def __init__(self, order: RunOrder, trainer: Trainer, on_written: Callable[[Written], None]) -> None:
        """Collective. `on_written` is called on the first rank, from the writing thread."""
        self._order = order
        self._trainer = trainer
        self._on_written = on_written
        self._parent = Path(order.options.checkpoint)
        self._rank = dist.get_rank()
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=WRITE_TIMEOUT_S))
        token = [uuid.uuid4().hex[:8]]
        dist.broadcast_object_list(token, group=self._group)
        self._token = token[0]
        if self._rank == 0:
            remove_left_behind(self._parent)
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._last_step = 0

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._pending is not None and not self._pending.done()

    def is_due(self, step: int) -> bool:
        """Whether the options ask for a checkpoint after this step."""
        return step % self._order.options.every == 0 or step == self._order.options.steps

    def save(self, step: int) -> None:
        """Copy the state after a step, and begin to write it; waits for the checkpoint before it."""
        if step == self._last_step:
            return
        self._last_step = step
        started = time.perf_counter()
        self.wait()
        pieces = self._copies()
        blocked_s = time.perf_counter() - started
        snapshot = _Snapshot(step, self._trainer.sampler.next_sample, pieces, started, blocked_s)
        self._pending = self._threads.submit(self._write, snapshot)

    def check(self) -> None:
        """Raise CheckpointFailed where the last checkpoint could not be written; does not wait."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Until nothing is being written; raises CheckpointFailed where that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def wait_a_moment(self) -> None:
        """Let a checkpoint that is under way come to its end, where this run is about to fail for another reason."""
        if self._pending is not None:
            wait([self._pending], timeout=GRACE_S)

    def _copies(self) -> tuple[Piece, ...]:
        """This rank's pieces in the host's memory; from a GPU through pinned memory, all at once."""
        state = RankState(self._trainer.data_parallel)
        mine = [piece for piece in (*state.pieces(), *state.random_pieces()) if piece.writes]
        is_cuda = torch.cuda.is_available()
        copies = []
        for piece in mine:
            host = torch.empty_like(piece.tensor, device="cpu", pin_memory=is_cuda)
            host.copy_(piece.tensor.detach(), non_blocking=True)
            copies.append(replace(piece, tensor=host))
        if is_cuda:
            torch.cuda.synchronize()
        return tuple(copies)

    def _write(self, snapshot: _Snapshot) -> None:
        """In the thread: everything from files to the folder's name; collective."""
        final = folder_of(self._parent, snapshot.step)
        partial = final.with_name(f"{final.name}.partial-{self._token}")
        try:
            planner = PieceWriter(snapshot.pieces, self._parent)
            state_dict_saver.save({}, checkpoint_id=partial, planner=planner, process_group=self._group)
            manifest = self._manifest(snapshot, partial, planner.model_elements)
            problem = self._agree(lambda: self._finish(manifest, partial, final))
        except CheckpointException as error:
            first = min(error.failures)
            raise CheckpointFailed(snapshot.step, str(final), error.failures[first][0], first) from None
        except OSError as error:
            raise CheckpointFailed(snapshot.step, str(final), error, self._rank) from error
        if problem is not None:
            raise CheckpointFailed(snapshot.step, str(final), problem, 0)
        if manifest is not None:
            seconds = time.perf_counter() - snapshot.started
            self._on_written(Written(snapshot.step, final, manifest.num_bytes, seconds, snapshot.blocked_s))

    def _manifest(self, snapshot: _Snapshot, partial: Path, elements: int) -> Manifest | None:
        """Checksums of every rank's files, together on the first rank; collective."""
        own = {path.name: file_of(path) for path in partial.glob(f"__{self._rank}_*")}
        gathered: list[Any] | None = [None] * dist.get_world_size() if self._rank == 0 else None
        dist.gather_object(own, gathered, group=self._group)
        if gathered is None:
            return None
        files: dict[str, StoredFile] = {".metadata": file_of(partial / ".metadata")}
        for found in gathered:
            files |= found
        return Manifest(snapshot.step, snapshot.next_sample, elements, files, facts_of(self._order))

    def _finish(self, manifest: Manifest | None, partial: Path, final: Path) -> None:
        """On the first rank: manifest, name, and older checkpoints that are not kept."""
        if manifest is None:
            return
        manifest.write(partial)
        commit(partial, final)
        prune(self._parent, self._order.options.keep)
        remove_left_behind(self._parent)

    def _agree(self, act: Callable[[], None]) -> Exception | None:
        """Every rank learns whether the first rank's act went well; collective."""
        outcome: list[Exception | None] = [None]
        try:
            act()
        except OSError as error:
            outcome = [error]
        dist.broadcast_object_list(outcome, group=self._group)
        return outcome[0]
