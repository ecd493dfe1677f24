"""Which points (schedule, p, v, m) are legal, and the errors for those that are not.

    ValueError
    +-- IllegalScheduleError       the point breaks a rule of its schedule
    +-- ScheduleNotModelledError   the schedule is known by name only

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


class ScheduleNotModelledError(ValueError):
    """A schedule of the contract whose operation lists are not modelled."""


class IllegalScheduleError(ValueError):
    """A point (schedule, p, v, m) that breaks at least one rule; `violations` lists them."""

    def __init__(self, violations: tuple[ScheduleViolation, ...]) -> None:
        super().__init__("; ".join(violation.message for violation in violations))
        self.violations = violations


def schedule_violations(schedule: ScheduleName, p: int, v: int, m: int) -> tuple[ScheduleViolation, ...]:
    """Rules of the schedule that (p, v, m) breaks, empty when the point is legal.

    Interleaving follows Megatron-LM (megatron/core/pipeline_parallel/schedules.py): more than one rank,
    at least two chunks, and micro-batches taken in whole groups of p.
    """
    counts = (("pipeline ranks", "pp", p), ("chunks per rank", "vpp", v), ("micro-batches", "m", m))
    found = [_not_positive(what, key, value) for what, key, value in counts if value < 1]
    if not schedule.is_modelled:
        message = f"schedule {schedule} is not modelled; use gpipe, 1f1b or interleaved"
        found.append(ScheduleViolation("schedule-not-modelled", message, ()))
    elif not found and schedule is ScheduleName.INTERLEAVED:
        found.extend(_interleaved_violations(p, v, m))
    elif not found and v != 1:
        message = f"schedule {schedule} has 1 chunk per rank, vpp is {v}; set vpp=1 or schedule=interleaved"
        found.append(ScheduleViolation("schedule-one-chunk", message, (1,)))
    return tuple(found)


def check_legal(schedule: ScheduleName, p: int, v: int, m: int) -> None:
    """Raise ScheduleNotModelledError or IllegalScheduleError unless the point has operation lists."""
    violations = schedule_violations(schedule, p, v, m)
    if not schedule.is_modelled:
        raise ScheduleNotModelledError(violations[-1].message)
    if violations:
        raise IllegalScheduleError(violations)


def _not_positive(what: str, key: str, value: int) -> ScheduleViolation:
    return ScheduleViolation("schedule-positive", f"{what} ({key}) is {value}; use at least 1", (1,))


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
