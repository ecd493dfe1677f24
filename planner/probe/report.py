"""A probe as an answer: beside the plan by cause, what it cannot show, and how a measurement is carried back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.errors import BadInput
from planner.answers import Certificate, PlanResult
from planner.probe.derive import Probe

CARRY = (
    "plan's bytes = predicted plan + (measured probe - predicted probe); "
    "plan's seconds = predicted plan + (measured probe - predicted probe) x predicted plan / predicted probe"
)


@dataclass(frozen=True, slots=True)
class Carried:
    """What a measured probe says about the plan.

    The probe holds what the plan's fullest device holds, so bytes that the prediction lacks are lacking in the plan
    too; seconds are in proportion to the step.
    """

    measured_bytes: float
    measured_s: float
    predicted_bytes: float
    predicted_s: float
    plan_bytes: float
    plan_s: float
    used_bytes: float
    """Of the plan's fullest device, with what lies beside the allocated bytes."""
    fits: bool

    @property
    def more_bytes(self) -> float:
        """Measured minus predicted."""
        return self.measured_bytes - self.predicted_bytes

    @property
    def more_s(self) -> float:
        """Measured minus predicted."""
        return self.measured_s - self.predicted_s

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "measured_bytes": self.measured_bytes,
            "measured_step_s": self.measured_s,
            "measured_minus_predicted_bytes": self.more_bytes,
            "measured_minus_predicted_step_s": self.more_s,
            "plan_bytes": self.plan_bytes,
            "plan_step_s": self.plan_s,
            "plan_device_used_bytes": self.used_bytes,
            "plan_fits": self.fits,
        }


def probe_json(probe: Probe, carried: Carried | None = None) -> dict[str, object]:
    """`planner probe --json`."""
    planned, shown = probe.planned, probe.shown
    causes = dict.fromkeys((*planned.by_cause, *shown.by_cause))
    return {
        "devices": probe.situation.cluster.num_devices,
        "layers": probe.situation.model.num_blocks,
        "probe": probe.prediction.to_json(),
        "plan": {
            "stage": planned.stage,
            "allocated_bytes": planned.allocated_bytes,
            "step_s": probe.plan.step_s,
            "layer_s": probe.plan_layer_s,
        },
        "shows": {
            "stage": shown.stage,
            "allocated_bytes": shown.allocated_bytes,
            "layer_s": probe.probe_layer_s,
            "distance": probe.distance,
            "by_cause": {
                cause: {"plan": planned.by_cause.get(cause, 0.0), "probe": shown.by_cause.get(cause, 0.0)}
                for cause in causes
            },
        },
        "differs": list(differs(probe)),
        "carry": CARRY,
        "carried": carried.to_json() if carried else None,
    }


def differs(probe: Probe) -> Iterator[str]:
    """What the probe does otherwise than the plan, and so does not show."""
    ours, theirs = probe.plan.strategy, probe.prediction.strategy
    if theirs.pp < ours.pp:
        yield (
            f"pp {theirs.pp} instead of {ours.pp}: fewer micro-batches are in flight, and embedding and head lie on "
            "ranks that hold neither in the plan"
        )
    if theirs.dp * theirs.cp < ours.dp * ours.cp and ours.zero:
        yield (
            f"{theirs.dp * theirs.cp} instead of {ours.dp * ours.cp} ranks share the states: each holds more of the "
            "optimizer, by arithmetic"
        )
    if theirs.cp < ours.cp:
        yield f"cp {theirs.cp} instead of {ours.cp} with as much shorter sequences: attention costs less"
    if theirs.ep < ours.ep:
        yield f"ep {theirs.ep} instead of {ours.ep} with as many experts fewer: tokens travel less far"
    if theirs.vpp < ours.vpp:
        yield f"vpp {theirs.vpp} instead of {ours.vpp}"
    if ours.dp > theirs.dp:
        yield f"dp {theirs.dp} instead of {ours.dp}: gradients travel over fewer and nearer ranks"


def probe_result(probe: Probe) -> PlanResult:
    """The probe as a plan that was not searched for, for a plan file."""
    none = Certificate("step_time", None, None, 1, {}, 0, 0, 0, 1, {"probe": "one layout, not searched"}, 0.0)
    return PlanResult("feasible", probe.prediction, (), none, reason="a probe: one layout, not searched")


def carry(probe: Probe, run: Mapping[str, Any]) -> Carried:
    """Carry the JSON of `planner run` of the probe back to the plan; raises BadInput where it holds no measurement."""
    measured = run.get("measured")
    values = measured if isinstance(measured, Mapping) else {}
    seconds, size = _positive(values, "step_s"), _positive(values, "peak_bytes")
    predicted, planned = probe.prediction, probe.plan.memory
    more_bytes = size - predicted.memory.peak_allocated_bytes
    used_bytes = planned.device_used_bytes + more_bytes
    return Carried(
        measured_bytes=size,
        measured_s=seconds,
        predicted_bytes=predicted.memory.peak_allocated_bytes,
        predicted_s=predicted.step_s,
        plan_bytes=planned.peak_allocated_bytes + more_bytes,
        plan_s=probe.plan.step_s + (seconds - predicted.step_s) * probe.plan.step_s / predicted.step_s,
        used_bytes=used_bytes,
        fits=used_bytes <= planned.capacity_bytes,
    )


def _positive(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise BadInput(
            f"the run holds no measured {key}; give the JSON of planner run of the probe", pointer="/measured"
        )
    return float(value)
