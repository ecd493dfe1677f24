"""Which points (schedule, p, v, m) are legal, and the error for those that are not.

Symbols: p pipeline ranks, v chunks (virtual stages) per rank, m micro-batches per step.
"""

from dataclasses import dataclass

from cost_models.schedule.names import ScheduleName


@dataclass(frozen=True, slots=True)
class ScheduleViolation:
    """One broken rule, with the numbers in the message and the nearest legal values of the knob."""

    rule: str
    message: str
    nearest: tuple[int, ...]


class IllegalScheduleError(ValueError):
    """A point (schedule, p, v, m) that breaks at least one rule; `violations` lists them."""

    def __init__(self, violations: tuple[ScheduleViolation, ...]) -> None:
        super().__init__("; ".join(violation.message for violation in violations))
        self.violations = violations


def schedule_violations(schedule: ScheduleName, p: int, v: int, m: int) -> tuple[ScheduleViolation, ...]:
    """Rules of the schedule that (p, v, m) breaks, empty when the point is legal.

    Interleaving follows Megatron-LM (megatron/core/pipeline_parallel/schedules.py): more than one rank,
    at least two chunks, and micro-batches taken in whole groups of p.  DualPipe follows its authors' code
    (github.com/deepseek-ai/DualPipe, dualpipe.py and dualpipev.py): ranks in pairs, as many micro-batches
    in each direction as stages it passes.
    """
    counts = (("pipeline ranks", "pp", p), ("chunks per rank", "vpp", v), ("micro-batches", "m", m))
    found = [_not_positive(what, key, value) for what, key, value in counts if value < 1]
    if found:
        return tuple(found)
    if schedule is ScheduleName.INTERLEAVED:
        return tuple(_interleaved_violations(p, v, m))
    if schedule.splits_backward and p < 2:
        found.append(_few_ranks(schedule, p))
    wanted = 2 if schedule.has_two_chunks else 1
    if v != wanted:
        found.append(_wrong_chunks(schedule, v, wanted))
    if schedule is ScheduleName.DUALPIPE and p > 1 and p % 2:
        message = f"schedule dualpipe pairs its ranks, pp is {p}; set pp={p - 1} or {p + 1}"
        found.append(ScheduleViolation("dualpipe-ranks", message, (p - 1, p + 1)))
    if schedule in (ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V):
        found.extend(_dualpipe_micro_batch_violations(schedule, p, m))
    return tuple(found)


def check_legal(schedule: ScheduleName, p: int, v: int, m: int) -> None:
    """Raise IllegalScheduleError unless the point has operation lists."""
    violations = schedule_violations(schedule, p, v, m)
    if violations:
        raise IllegalScheduleError(violations)


def _not_positive(what: str, key: str, value: int) -> ScheduleViolation:
    return ScheduleViolation("schedule-positive", f"{what} ({key}) is {value}; use at least 1", (1,))


def _few_ranks(schedule: ScheduleName, p: int) -> ScheduleViolation:
    message = f"schedule {schedule} needs 2 or more pipeline ranks, pp is {p}; set pp=2 or schedule=1f1b"
    return ScheduleViolation("split-backward-ranks", message, (2,))


def _wrong_chunks(schedule: ScheduleName, v: int, wanted: int) -> ScheduleViolation:
    if wanted == 1:
        message = f"schedule {schedule} has 1 chunk per rank, vpp is {v}; set vpp=1 or schedule=interleaved"
        return ScheduleViolation("schedule-one-chunk", message, (1,))
    message = f"schedule {schedule} has 2 chunks per rank, vpp is {v}; set vpp=2"
    return ScheduleViolation("schedule-two-chunks", message, (2,))


def _dualpipe_micro_batch_violations(schedule: ScheduleName, p: int, m: int) -> list[ScheduleViolation]:
    found = []
    if m < 2 * p:
        message = (
            f"schedule {schedule} needs at least 2 x pp = {2 * p} micro-batches, there are {m} per step; "
            f"use {2 * p} micro-batches or schedule=1f1b"
        )
        found.append(ScheduleViolation("dualpipe-micro-batches", message, (2 * p,)))
    elif schedule is ScheduleName.DUALPIPE and m % 2:
        message = (
            f"schedule dualpipe sends half of the micro-batches each way, there are {m} per step; "
            f"use {m - 1} or {m + 1} micro-batches"
        )
        nearest = tuple(value for value in (m - 1, m + 1) if value >= 2 * p)
        found.append(ScheduleViolation("dualpipe-even-micro-batches", message, nearest))
    return found


def _interleaved_violations(p: int, v: int, m: int) -> list[ScheduleViolation]:
    found = []
    if p < 2:
        message = f"schedule interleaved needs 2 or more pipeline ranks, pp is {p}; set pp=2 or schedule=1f1b"
        found.append(ScheduleViolation("interleaved-ranks", message, (2,)))
    if v < 2:
        message = f"schedule interleaved needs 2 or more chunks, vpp is {v}; set vpp=2 or schedule=1f1b"
        found.append(ScheduleViolation("interleaved-chunks", message, (2,)))
    if m % p:
        nearest = tuple(value for value in (m - m % p, m - m % p + p) if value > 0)
        message = (
            f"schedule interleaved takes micro-batches in groups of pp={p}, there are {m} per step; "
            f"use {' or '.join(map(str, nearest))} micro-batches"
        )
        found.append(ScheduleViolation("interleaved-micro-batches", message, nearest))
    return found
