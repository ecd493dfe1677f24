"""The allocator's constants refitted without one source at a time, from what its other sources show."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Final

from planner.answers import StageMemory
from planner.validation.predict import Outcome
from planner.validation.ranking import grouped

SLACKS: Final = tuple(round(0.01 * i, 2) for i in range(31))
HELD: Final = tuple(round(0.01 * i, 2) for i in range(9))
SIGMAS: Final = tuple(round(0.01 * i, 2) for i in range(4, 15))
"""Values tried."""

CERTAIN: Final = 1e-6
"""Probabilities nearer to 0 and 1 count as this near."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Constants fitted without one source, and how that source is predicted with them."""

    source: str
    rows: int
    fitted: tuple[float, ...]
    score: float  # mean |error| of its counters, or its Brier score


def slack_left_out(outcomes: Sequence[Outcome], *, contiguous: bool) -> tuple[LeftOut, ...]:
    """The slack without each source of one kind of engine: least mean over sources of their mean |error|."""
    rows = grouped([o for o in outcomes if _shows_slack(o) and _contiguous(o) is contiguous], _source)
    found = []
    for source, own in rows.items():
        others = [each for name, each in rows.items() if name != source]
        if others:
            slack = _best_slack(others)
            found.append(LeftOut(source, len(own), (slack,), _slack_error(own, slack)))
    return tuple(found)


def best_slack(outcomes: Sequence[Outcome], *, contiguous: bool) -> float | None:
    """The slack that all sources of one kind of engine show; None where none has such a counter."""
    rows = grouped([o for o in outcomes if _shows_slack(o) and _contiguous(o) is contiguous], _source)
    return _best_slack(list(rows.values())) if rows else None


def risk_left_out(outcomes: Sequence[Outcome]) -> tuple[LeftOut, ...]:
    """Held share and sigma of greatest likelihood without each source that had failures, and its Brier score."""
    rows = [o for o in outcomes if o.prediction and not _expandable(o)]
    found = []
    for source, own in grouped(rows, _source).items():
        if any(o.run.out_of_memory for o in own):
            held, sigma = best_risk([o for o in rows if o.run.source != source])
            found.append(LeftOut(source, len(own), (held, sigma), _brier(own, held, sigma)))
    return tuple(found)


def best_risk(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Held share and sigma under which what happened is likeliest."""
    pairs = [(share, o.run.out_of_memory) for o in outcomes if (share := _taken(o)) is not None]
    choices = [(held, sigma) for held in HELD for sigma in SIGMAS]

    def surprise(choice: tuple[float, float]) -> float:
        total = 0.0
        for share, failed in pairs:
            p = min(max(_probability(share, *choice), CERTAIN), 1.0 - CERTAIN)
            total -= math.log(p if failed else 1.0 - p)
        return total

    return min(choices, key=surprise)


def _source(outcome: Outcome) -> str:
    return outcome.run.source


def _contiguous(outcome: Outcome) -> bool:
    return bool(outcome.case and outcome.case.situation.engine.contiguous_states)


def _expandable(outcome: Outcome) -> bool:
    return bool(outcome.case and outcome.case.situation.engine.options.expandable_segments)


def _shows_slack(outcome: Outcome) -> bool:
    counted = outcome.memory_error is not None and outcome.run.counter in ("reserved", "device_used")
    return counted or outcome.reserved_error is not None


def _slack_error(rows: Sequence[Outcome], slack: float) -> float:
    return fmean(abs(_with_slack(o, slack)) for o in rows)


def _best_slack(sources: Sequence[Sequence[Outcome]]) -> float:
    return min(SLACKS, key=lambda slack: fmean(_slack_error(rows, slack) for rows in sources))


def _with_slack(outcome: Outcome, slack: float) -> float:
    """Relative error of a row under another slack."""
    run = outcome.run
    if (
        run.reserved_bytes is not None
    ):  # both counters are printed: the measured allocation, not the predicted one
        return (run.memory_bytes or 0.0) * (1.0 + slack) / run.reserved_bytes - 1.0
    capacity = outcome.prediction.memory.capacity_bytes if outcome.prediction else math.inf

    def held(stage: StageMemory) -> float:
        outside = stage.device_used_bytes - stage.reserved_bytes if run.counter == "device_used" else 0.0
        return min(stage.allocated_bytes * (1.0 + slack) + outside, capacity)

    return max(held(stage) for stage in outcome.counted_stages) / (run.memory_bytes or math.inf) - 1.0


def _taken(outcome: Outcome) -> float | None:
    """Allocated bytes and those outside torch over the capacity, on the fullest stage."""
    if outcome.prediction is None:
        return None
    memory = outcome.prediction.memory
    return max(
        (s.allocated_bytes + s.device_used_bytes - s.reserved_bytes) / memory.capacity_bytes
        for s in memory.stages
    )


def _probability(share: float, held: float, sigma: float) -> float:
    needed = share * (1.0 + held)
    return 1.0 - NormalDist().cdf((1.0 - needed) / (sigma * needed))


def _brier(rows: Sequence[Outcome], held: float, sigma: float) -> float:
    return fmean((_probability(_taken(o) or 0.0, held, sigma) - o.run.out_of_memory) ** 2 for o in rows)
