"""Which points (schedule, p, v, m) are legal, and the error for those that are not.

Symbols: p pipeline ranks, v chunks (virtual stages) per rank, m micro-batches per step.
"""

from dataclasses import dataclass
from typing import Final

from cost_models.schedule.names import ScheduleName

MICRO_BATCHES: Final = "micro-batches"
"""The knob that a step has by its global batch."""


@dataclass(frozen=True, slots=True)
class ScheduleViolation:
    """One broken rule with its numbers, the nearest legal values of `knob`, and other ways out in words."""

    rule: str
    detail: str
    knob: str
    nearest: tuple[int, ...]
    instead: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The whole sentence."""
        ways = (f"{self.knob} {' or '.join(map(str, self.nearest))}", *self.instead)
        return f"{self.detail}; use {' or '.join(ways)}"


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
        detail = f"schedule dualpipe pairs its ranks, pp is {p}"
        found.append(ScheduleViolation("dualpipe-ranks", detail, "pp", (p - 1, p + 1)))
    if schedule in (ScheduleName.DUALPIPE, ScheduleName.DUALPIPE_V):
        found.extend(_dualpipe_micro_batch_violations(schedule, p, m))
    return tuple(found)


def check_legal(schedule: ScheduleName, p: int, v: int, m: int) -> None:
    """Raise IllegalScheduleError unless the point has operation lists."""
    violations = schedule_violations(schedule, p, v, m)
    if violations:
        raise IllegalScheduleError(violations)


def _not_positive(what: str, key: str, value: int) -> ScheduleViolation:
    return ScheduleViolation("schedule-positive", f"{what} ({key}) is {value}", key, (1,))


def _few_ranks(schedule: ScheduleName, p: int) -> ScheduleViolation:
    detail = f"schedule {schedule} needs 2 or more pipeline ranks, pp is {p}"
    return ScheduleViolation("split-backward-ranks", detail, "pp", (2,), ("schedule=1f1b",))


def _wrong_chunks(schedule: ScheduleName, v: int, wanted: int) -> ScheduleViolation:
    detail = f"schedule {schedule} has {wanted} chunk{'s' * (wanted > 1)} per rank, vpp is {v}"
    if wanted == 1:
        return ScheduleViolation("schedule-one-chunk", detail, "vpp", (1,), ("schedule=interleaved",))
    return ScheduleViolation("schedule-two-chunks", detail, "vpp", (2,))


def _dualpipe_micro_batch_violations(schedule: ScheduleName, p: int, m: int) -> list[ScheduleViolation]:
    found = []
    if m < 2 * p:
        detail = f"schedule {schedule} needs at least 2 x pp = {2 * p} micro-batches, there are {m} per step"
        found.append(
            ScheduleViolation("dualpipe-micro-batches", detail, MICRO_BATCHES, (2 * p,), ("schedule=1f1b",))
        )
    elif schedule is ScheduleName.DUALPIPE and m % 2:
        detail = f"schedule dualpipe sends half of the micro-batches each way, there are {m} per step"
        nearest = tuple(value for value in (m - 1, m + 1) if value >= 2 * p)
        found.append(ScheduleViolation("dualpipe-even-micro-batches", detail, MICRO_BATCHES, nearest))
    return found


def _interleaved_violations(p: int, v: int, m: int) -> list[ScheduleViolation]:
    found = []
    plain = ("schedule=1f1b with vpp 1",)
    if p < 2:
        detail = f"schedule interleaved needs 2 or more pipeline ranks, pp is {p}"
        found.append(ScheduleViolation("interleaved-ranks", detail, "pp", (2,), plain))
    if v < 2:
        detail = f"schedule interleaved needs 2 or more chunks, vpp is {v}"
        found.append(ScheduleViolation("interleaved-chunks", detail, "vpp", (2,), ("schedule=1f1b",)))
    if m % p:
        nearest = tuple(value for value in (m - m % p, m - m % p + p) if value > 0)
        detail = f"schedule interleaved takes micro-batches in groups of pp={p}, there are {m} per step"
        found.append(ScheduleViolation("interleaved-micro-batches", detail, MICRO_BATCHES, nearest, plain))
    return found
