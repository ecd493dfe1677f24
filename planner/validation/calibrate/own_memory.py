"""Memory of a user's own runs: bytes that each device's runs allocate beside what is predicted, if they help.

One number a device, the median of measured - predicted: what its libraries keep, which no formula of the tensors knows
and the median leaves free of single runs. One run in five is not fitted to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from cost_models.device_memory import allocator_of
from planner.validation.calibrate.held_out import FEWEST, before_and_after, helps, split
from planner.validation.predict import Outcome
from planner.validation.ranking import grouped


@dataclass(frozen=True, slots=True)
class OwnMemory:
    """Bytes by device, and mean |predicted / measured - 1| of the counters that the runs read, before and after."""

    shifts_bytes: Mapping[str, float]
    fitted: int
    held: int
    errors: Mapping[str, float]

    @property
    def helps(self) -> bool:
        """Whether runs that were not fitted to are predicted no worse."""
        return helps(self.errors)

    def to_json(self) -> dict[str, object]:
        """`memory` of `planner calibrate --json`."""
        return {
            "written": self.helps,
            "fitted_runs": self.fitted,
            "held_out_runs": self.held,
            "errors": dict(self.errors),
            "beside_bytes": dict(self.shifts_bytes),
        }


def calibrate_memory(outcomes: Sequence[Outcome]) -> OwnMemory | None:
    """Fit to the runs that read a memory counter and state all their knobs; None where they are too few."""
    known = [o for o in outcomes if o.memory_error is not None and not o.assumed]
    if len(known) < FEWEST:
        return None
    kept, held = split(known, lambda o: o.run.id)
    shifts = {
        device: float(round(median(_beside_bytes(o) for o in rows)))
        for device, rows in grouped(kept, _device).items()
    }
    errors = before_and_after(
        kept, held, lambda rows: _mean_error(rows, {}), lambda rows: _mean_error(rows, shifts)
    )
    return OwnMemory(shifts, len(kept), len(held), errors)


def _device(outcome: Outcome) -> str:
    return outcome.case.situation.cluster.device.name if outcome.case else ""


def _beside_bytes(outcome: Outcome) -> float:
    """Allocated bytes that the prediction lacks."""
    return ((outcome.run.memory_bytes or 0.0) - (outcome.predicted_bytes or 0.0)) / _counted(outcome)


def _counted(outcome: Outcome) -> float:
    """Bytes that the run's counter shows for each allocated one."""
    if outcome.case is None or outcome.run.counter == "allocated":
        return 1.0
    situation = outcome.case.situation
    return 1.0 + allocator_of(situation.engine, situation.cluster.device).slack


def _mean_error(rows: Sequence[Outcome], shifts_bytes: Mapping[str, float]) -> float:
    def error(outcome: Outcome) -> float:
        shift = shifts_bytes.get(_device(outcome), 0.0) * _counted(outcome)
        return ((outcome.predicted_bytes or 0.0) + shift) / (outcome.run.memory_bytes or 1.0) - 1.0

    return fmean(abs(error(outcome)) for outcome in rows)
