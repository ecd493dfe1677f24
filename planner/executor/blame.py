"""Which rank ended a run and why, from what ranks left in the run's folder; and what to do about it. Needs no torch."""

import signal
from pathlib import Path
from typing import Final

from cost_models.units import format_bytes
from planner.errors import Circumstances, RunFailed
from planner.evaluation import evaluate
from planner.executor.checkpoint.store import list_checkpoints
from planner.executor.failures import (
    CONSEQUENCES,
    HUNG,
    KILLED,
    MEMORY,
    TIMEOUT,
    Failure,
    first_failure_of,
    read_failures,
)
from planner.executor.progress import Sign, hung_rank, last_attempt, read_signs
from planner.executor.request import RunOrder
from planner.remedies import remedies

MOST_RANKS: Final = 8
"""Ranks that a message names."""
MOST_REMEDIES: Final = 2


def run_failed(order: RunOrder, run_dir: Path, rank: int, exit_code: int, text: str) -> RunFailed:
    """The failure of a run whose launcher saw this rank end first, with this exit code and these last words."""
    found = _of_attempt(run_dir, last_attempt(run_dir), rank if exit_code < 0 else None)
    if found is None or (found.kind == KILLED and exit_code >= 0):
        return RunFailed(rank, exit_code, text, Circumstances(resume_from=_last_good(order)))
    message = found.message
    if found.kind == MEMORY:
        message = f"{message}; {memory_advice(order)}"
    elif found.kind == KILLED:
        message = memory_advice(order) if exit_code == -signal.SIGKILL else ""
    at = Circumstances(found.kind, found.phase, found.step, _last_good(order))
    return RunFailed(found.rank, exit_code, message or text, at)


def failure_before(run_dir: Path, attempt: int) -> Failure | None:
    """Why the attempt before this one ended, as far as its ranks left word."""
    return _of_attempt(run_dir, attempt - 1, None) if attempt else None


def memory_advice(order: RunOrder) -> str:
    """What the prediction was, and which changes would need less, the fastest first."""
    prediction = evaluate(order.situation, order.strategy)
    memory = prediction.memory
    said = (
        f"predicted were {format_bytes(memory.peak_allocated_bytes)} a rank at its peak ({memory.peak_phase}), "
        f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} in all"
    )
    less = remedies(order.situation, prediction, below_bytes=memory.device_used_bytes)[:MOST_REMEDIES]
    if not less:
        return f"{said}; no single change of the layout needs less: use more devices"
    changes = " or ".join(
        f"{remedy.change} ({format_bytes(remedy.device_used_bytes)}, {1.0 + remedy.slowdown:.2f} x the step)"
        for remedy in less
    )
    return f"{said}; change to {changes}"


def _of_attempt(run_dir: Path, attempt: int, ended: int | None) -> Failure | None:
    """What came first in an attempt; `ended` is the rank that a launcher saw end by a signal."""
    signs = read_signs(run_dir, attempt)
    first = first_failure_of(run_dir, attempt)
    if first is not None and first.kind not in CONSEQUENCES:
        return first
    missed = [each.rank for each in read_failures(run_dir) if each.attempt == attempt]
    hung = hung_rank(signs, missed) if first is not None and first.kind == TIMEOUT else None
    if hung is not None:
        sign, what = hung
        waited = ", ".join(map(str, sorted(missed)[:MOST_RANKS])) + (
            ", …" if len(missed) > MOST_RANKS else ""
        )
        advice = "look there, or give a longer --timeout-s"
        return _failure(sign, HUNG, f"it {what} while rank {waited} waited for it in vain; {advice}", attempt)
    gone = [sign for sign in signs if (sign.rank not in missed if ended is None else sign.rank == ended)]
    if gone:
        # A killed rank cannot say so: its signs end first.
        return _failure(min(gone, key=lambda sign: sign.at_s), KILLED, "it was killed", attempt)
    return first


def _failure(sign: Sign, kind: str, message: str, attempt: int) -> Failure:
    return Failure(sign.rank, attempt, kind, sign.phase, sign.step, message, sign.at_s)


def _last_good(order: RunOrder) -> str:
    """Path of the newest checkpoint that looks whole; empty where there is none."""
    if not order.options.checkpoint:
        return ""
    good = [entry for entry in list_checkpoints(Path(order.options.checkpoint)) if entry.is_valid]
    return str(good[-1].path) if good else ""
