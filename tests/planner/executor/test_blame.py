"""Who is blamed: from the failures and signs that ranks left in a run's folder."""

import errno
import sys
import time
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.executor.blame import failure_before, run_failed
from planner.executor.failures import (
    DATA,
    DISK,
    ERROR,
    HUNG,
    INPUT,
    KILLED,
    LOST,
    MEMORY,
    TIMEOUT,
    CheckpointFailed,
    DataExhausted,
    Failure,
    failure_of,
    kind_of,
    lasting_failure,
)
from planner.executor.progress import Progress, Sign, hung_rank, is_waiting, read_signs
from tests.planner.executor.orders import tiny_order


def sign(rank: int, at_s: float, *, waits: bool, step: int = 5) -> Sign:
    """A sign of a rank that entered its phase at 10 s."""
    return Sign(rank, step, "data", 10.0, at_s, 1.0, is_waiting=waits, where="load (data.py:7)")


def fail(run_dir: Path, rank: int, kind: str, at_s: float, attempt: int = 0) -> None:
    """A rank leaves its failure."""
    Failure(rank, attempt, kind, "optimizer", 6, f"words of {rank}", at_s).write(run_dir)


def sign_in(run_dir: Path, rank: int, attempt: int = 0) -> None:
    """A rank that lived for a moment in the third step."""
    progress = Progress(run_dir, rank, attempt)
    progress.start(1000.0)
    progress.enter("forward and backward", 3)
    progress.stop()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), MEMORY),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), MEMORY),
        (OSError(errno.ENOSPC, "No space left on device"), DISK),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"), DISK),
        (RuntimeError("Timed out waiting 4000ms for recv operation to complete"), TIMEOUT),
        (RuntimeError("Read error [127.0.0.1]:16048: Connection reset by peer"), LOST),
        (DataExhausted("end"), DATA),
        (BadInput("no"), INPUT),
        (ValueError("no space"), ERROR),
        (CheckpointFailed(4, "/nowhere/step", OSError(errno.ENOSPC, "No space left"), 2), DISK),
    ],
)
def test_kinds(error: Exception, kind: str) -> None:
    assert kind_of(error) == kind


def test_a_checkpoint_that_one_rank_could_not_write_is_that_ranks_failure() -> None:
    error = CheckpointFailed(4, "/nowhere/step", OSError(errno.EIO, "Input/output error"), 2)
    found = failure_of(error, rank=0, attempt=1, phase="checkpoint", step=4)
    assert (found.rank, found.attempt, found.kind) == (2, 1, ERROR)
    assert found.message.endswith("could not be written: Input/output error")


def test_the_rank_that_does_not_wait_is_the_one_that_hangs() -> None:
    signs = [sign(0, 70.0, waits=True), sign(1, 70.0, waits=False), sign(2, 70.0, waits=True)]
    found = hung_rank(signs, [0, 2])
    assert found is not None
    assert found[0].rank == 1
    assert found[1] == "was busy for 60 s in load (data.py:7)"


def test_a_rank_without_signs_of_life_hangs_whatever_it_did_last() -> None:
    signs = [sign(0, 70.0, waits=True), sign(1, 20.0, waits=True), sign(2, 70.0, waits=False)]
    found = hung_rank(signs, [0])
    assert found is not None
    assert found[0].rank == 1
    assert found[1] == "gave no sign of life for 50 s"


def test_where_all_wait_nobody_hangs() -> None:
    assert hung_rank([sign(0, 70.0, waits=True), sign(1, 70.0, waits=True)], [0]) is None


class Work:
    """What a collective gives."""

    def wait(self) -> bool:
        """Whether the caller's line is one that waits."""
        return is_waiting(sys._getframe(1))

    def compute(self) -> bool:
        """As above, under a name that is no collective's."""
        return is_waiting(sys._getframe(1))


def test_waiting_is_told_from_the_line() -> None:
    work = Work()
    assert work.wait()
    assert not work.compute()


def test_signs_are_read_as_they_were_left(tmp_path: Path) -> None:
    before = time.time()
    sign_in(tmp_path, 1)
    sign_in(tmp_path, 0)
    found = read_signs(tmp_path, 0)
    assert [(each.rank, each.step, each.phase) for each in found] == [
        (0, 3, "forward and backward"),
        (1, 3, "forward and backward"),
    ]
    assert all(before <= each.at_s <= time.time() for each in found)
    assert read_signs(tmp_path, 1) == []


def test_a_killed_rank_is_named_though_its_peers_failed_too(tmp_path: Path) -> None:
    sign_in(tmp_path, 0)
    sign_in(tmp_path, 1)
    fail(tmp_path, 0, LOST, 100.0)
    found = failure_before(tmp_path, 1)
    assert found is not None
    assert (found.rank, found.kind, found.step) == (1, KILLED, 3)
    text = str(run_failed(tiny_order("dp=2", devices=2), tmp_path, 1, -9, ""))
    assert text.startswith("rank 1 was ended by SIGKILL; it may have run out of memory: predicted were ")
    assert "change to " in text
    assert text.endswith("(step 3, forward and backward)")


def test_who_hangs_is_named_and_not_who_waited(tmp_path: Path) -> None:
    sign_in(tmp_path, 0)
    sign_in(tmp_path, 1)
    fail(tmp_path, 0, TIMEOUT, 100.0)
    # The launcher ends the rank that hangs with SIGKILL, where nothing less ends it.
    found = run_failed(tiny_order("dp=2", devices=2), tmp_path, 1, -9, "")
    assert (found.rank, found.at.kind, found.at.step) == (1, HUNG, 3)
    assert "while rank 0 waited for it in vain" in str(found)


def test_a_cause_comes_before_its_consequences(tmp_path: Path) -> None:
    fail(tmp_path, 0, LOST, 99.0)
    fail(tmp_path, 1, MEMORY, 100.0)
    found = run_failed(tiny_order("dp=2", devices=2), tmp_path, 0, 1, "")
    assert (found.rank, found.at.kind) == (1, MEMORY)
    assert "words of 1; predicted were" in str(found)


def test_what_would_come_again_is_not_tried_again(tmp_path: Path) -> None:
    fail(tmp_path, 0, ERROR, 100.0)
    assert lasting_failure(tmp_path, 1) is None
    fail(tmp_path, 0, DISK, 200.0, attempt=1)
    assert lasting_failure(tmp_path, 2) is not None
    assert lasting_failure(tmp_path, 0) is None


def test_without_any_word_of_the_ranks_the_launchers_stand(tmp_path: Path) -> None:
    found = run_failed(tiny_order("dp=2", devices=2), tmp_path, 1, 7, "last words")
    assert str(found) == "rank 1 failed with exit code 7: last words"
