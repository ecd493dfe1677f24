"""The front of time against memory against devices: plans none of which is beaten in all three.

For each declared number of devices, the fastest plan of all; then the fastest that uses at most `STEP_DOWN` of what the
last one used, and so on until nothing fits. Each is certified for its budget, so no plan within a budget is faster than
its point by more than the gap; between two budgets the front is not resolved.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from planner.answers import PlanResult, Prediction
from planner.objectives.asking import Asking
from planner.objectives.counts import doubled_counts
from planner.objectives.leanest import margin, refuse_mixed, unreserved

STEP_DOWN = 0.75


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """One plan of a front: on how many devices, within which usable bytes, and the whole answer."""

    devices: int
    usable_bytes: float
    result: PlanResult
    plan: str | None = None
    """The plan file, where one was written."""

    @property
    def prediction(self) -> Prediction:
        """The plan's prediction."""
        assert self.result.best is not None
        return self.result.best

    def to_json(self) -> dict[str, object]:
        """One entry of the front's `points`."""
        best, certificate = self.prediction, self.result.certificate
        return {
            "plan": self.plan,
            "devices": self.devices,
            "usable_bytes": self.usable_bytes,
            "step_s": best.step_s,
            "lower_bound_s": certificate.lower_bound_s,
            "device_used_bytes": best.memory.device_used_bytes,
            "mfu": best.mfu,
            "strategy": best.strategy.text(),
            "evaluation": best.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Front:
    """Plans none of which is beaten in time, memory and devices at once."""

    points: tuple[FrontPoint, ...]
    devices: tuple[int, ...]
    step_down: float
    is_complete: bool

    def to_json(self) -> dict[str, object]:
        """The `front` object of an answer."""
        return {
            "devices": list(self.devices),
            "memory_step_down": self.step_down,
            "complete": self.is_complete,
            "points": [point.to_json() for point in self.points],
        }


def with_front(result: PlanResult, asking: Asking) -> PlanResult:
    """An answer with the front of its question beside it."""
    return replace(result, front=pareto_front(asking))


def pareto_front(asking: Asking) -> Front:
    """The front over the declared numbers of devices; `is_complete` is False where time ran out."""
    refuse_mixed(asking)
    space = doubled_counts(asking.situation.cluster)
    points: list[FrontPoint] = []
    is_complete = True
    for devices in reversed(space):
        for point in _by_budget(asking, devices):
            if point is None:
                is_complete = False
                break
            points.append(point)
    left = [point for point in points if not any(_beats(other, point) for other in points)]
    ordered = sorted(left, key=lambda p: (p.devices, p.prediction.step_s))
    return Front(tuple(ordered), space, STEP_DOWN, is_complete)


def _by_budget(asking: Asking, devices: int) -> Iterator[FrontPoint | None]:
    """The fastest plans on so many devices within falling budgets; None where time ran out."""
    capacity = asking.situation.cluster.device.capacity_bytes.value
    reserve = float(asking.situation.job.options.reserve_bytes)
    while True:
        if asking.is_late:
            yield None
            return
        changes = {"devices": devices, "reserve_bytes": reserve}
        found = asking.fastest(changes)
        if found is None or found.best is None:
            if found is not None and found.status == "unknown":
                yield None
            return
        answer = unreserved(asking, found, devices)
        assert answer.best is not None
        yield FrontPoint(devices, capacity - reserve, answer)
        used = answer.best.memory.device_used_bytes
        reserve = capacity - STEP_DOWN * used * margin(asking)


def _beats(one: FrontPoint, other: FrontPoint) -> bool:
    """Whether a point is nowhere worse and somewhere better; of equal ones none beats the other."""
    ours, theirs = _measures(one), _measures(other)
    return ours != theirs and all(a <= b for a, b in zip(ours, theirs, strict=True))


def _measures(point: FrontPoint) -> tuple[float, float, float]:
    return (float(point.devices), point.prediction.step_s, point.prediction.memory.device_used_bytes)
