"""Measures cases until their intervals are tight or the budget ends: the widest that matters most comes next.

Every case is warmed up and timed in short bursts, spread over the run, so that a disturbance of one moment shows in its
interval instead of in its median. First one case of every curve gets a burst, then every case in the order of its
weight, then each a second one; after that the budget goes where weight times half width is largest. So a profile that
is cut short knows something of every kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cost_models.profiler.case import Case, Clock, Found, Team, Work
from cost_models.profiler.statistics import half_width, interval, pooled_deviation
from cost_models.profiles.measured import Point

FIRST_BURSTS: Final = 2
MOST_BURSTS: Final = 64
STOP: Final = -1
WARM_UP: Final = 2
FLOOR: Final = 1e-3
"""Weight of a case that no part of the step hangs on."""
MOST_OF_BUDGET: Final = 0.05
"""A case whose burst would take more than this share of the budget is not begun."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how well: seconds in all, half width at which a case is done, seconds of a burst and of a sample."""

    budget_s: float
    tolerance: float = 0.05
    burst_s: float = 0.05
    sample_s: float = 2e-3
    most_samples: int = 25


@dataclass(slots=True)
class Progress:
    """What was measured so far, by the key of its case."""

    cases: Sequence[Case]
    found: dict[str, Found] = field(default_factory=dict)
    spent_s: float = 0.0
    complete: bool = False

    def points(self) -> tuple[Point, ...]:
        """Points of all cases with a burst, with their intervals as they stand."""
        pooled, points = _pooled(self), []
        for case in self.cases:
            found = self.found.get(case.key)
            if found is not None and found.bursts:
                centre, low, high = interval(found.medians, pooled)
                update = {"seconds": centre, "low_s": low, "high_s": high, "samples": tuple(found.bursts)}
                points.append(case.point.model_copy(update=update))
        return tuple(points)

    @property
    def failures(self) -> Mapping[str, str]:
        """Cases that could not run here, and why."""
        return {key: found.failure for key, found in self.found.items() if found.failure}


def measure(
    progress: Progress,
    clock: Clock,
    team: Team,
    effort: Effort,
    on_burst: Callable[[Progress], None] | None = None,
) -> Progress:
    """Measure until every case is tight or the budget ends; goes on from what `progress` holds already."""
    started, before = clock.now(), progress.spent_s
    while True:
        progress.spent_s = before + clock.now() - started
        choice = team.agree(_next(progress, effort))
        if choice == STOP:
            progress.complete = all(
                _is_done(progress, case, effort, _pooled(progress)) for case in progress.cases
            )
            return progress
        _burst(progress, progress.cases[choice], clock, team, effort)
        if on_burst is not None:
            on_burst(progress)


def _next(progress: Progress, effort: Effort) -> int:
    """Index of the case that the next burst is for, STOP where there is none or no time."""
    if progress.spent_s >= effort.budget_s:
        return STOP
    pooled, cases = _pooled(progress), progress.cases
    open_cases = [i for i, case in enumerate(cases) if not _is_done(progress, case, effort, pooled)]
    if not open_cases:
        return STOP

    known = {_curve(case) for case in cases if case.key in progress.found}

    def urgency(index: int) -> tuple[int, bool, float, int]:
        case = cases[index]
        bursts = progress.found[case.key].medians if case.key in progress.found else []
        weight = max(case.weight, FLOOR)
        if len(bursts) < FIRST_BURSTS:
            return -len(bursts), _curve(case) not in known, weight, -index
        return -FIRST_BURSTS, False, weight * half_width(bursts, pooled), -index

    return max(open_cases, key=urgency)


def _curve(case: Case) -> tuple[str, str, str, int]:
    """What the points of a case are put together with."""
    point = case.point
    return point.name, point.phase, point.precision, point.processes if point.kind == "collective" else 0


def _is_done(progress: Progress, case: Case, effort: Effort, pooled: float) -> bool:
    found = progress.found.get(case.key)
    if found is None:
        return case.expected_s > MOST_OF_BUDGET * effort.budget_s
    if found.failure or len(found.bursts) >= MOST_BURSTS:
        return True
    return len(found.bursts) >= FIRST_BURSTS and half_width(found.medians, pooled) <= effort.tolerance


def _pooled(progress: Progress) -> float:
    return pooled_deviation(found.medians for found in progress.found.values())


def _burst(progress: Progress, case: Case, clock: Clock, team: Team, effort: Effort) -> None:
    """One burst: as many calls a sample as fill its time, as many samples as fill the burst's, at least three."""
    found = progress.found.setdefault(case.key, Found())
    work, clock = _ready(case, found), case.clock or clock
    if team.agree(0 if work is None else 1) == 0 or work is None:
        found.failure = found.failure or "it failed on another process"
        return
    once = clock.samples(work, 1, 1)[0]
    calls = team.agree(max(1, round(effort.sample_s / max(once, 1e-9))) if once < effort.sample_s else 1)
    repeats = min(max(3, round(effort.burst_s / max(calls * once, 1e-9))), effort.most_samples)
    found.add(clock.samples(work, calls, team.agree(repeats)))


def _ready(case: Case, found: Found) -> Work | None:
    """The call, warmed up; None and the reason in `found` where it cannot run here, or cannot run again."""
    try:
        work = case.make()
        for _ in range(WARM_UP):
            work()
    except Exception as error:  # whatever a kernel that a device lacks raises
        found.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return None
    return work
