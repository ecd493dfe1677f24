"""The gate of a CI: does a strategy fit with the room asked for, and is it no worse than a baseline?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import with_config

from cost_models.errors import BadInput
from cost_models.specs.strategy import StrategyRequest
from cost_models.units import format_bytes, format_seconds
from planner.answers import CLOSED, Prediction
from planner.attribution import Origin, cause_of_change, configuration, origin_of, origin_of_baseline
from planner.evaluation import evaluate
from planner.remedies import Remedy, remedies
from planner.situation import Situation

MIN_STEP_S: Final = 1e-9
MAX_STEP_S: Final = 1e12
"""A step outside these is a mistake of the file, and its ratio to another may be no number."""
CAUSES: Final = {
    "activations": "saved activations",
    "optimizer": "optimizer states",
    "transient": "transient tensors",
}
VERDICTS: Final = ("fits", "at_risk", "does_not_fit")


@dataclass(frozen=True, slots=True)
class Limits:
    """What a strategy must hold: share of the device's memory, no risk, speed beside a baseline."""

    max_memory_fraction: float | None = None
    fail_at_risk: bool = False
    max_slowdown: float = 0.05
    max_memory_growth: float | None = None


@with_config(CLOSED)
@dataclass(frozen=True, slots=True)
class Regression:
    """One number that became worse than the baseline allows, and what moved it.

    `cause` names the configuration's keys that differ, the planner's version or profiles, or both; or says
    that the baseline does not tell.
    """

    metric: str
    baseline: float | str
    now: float | str
    cause: str
    detail: str

    def to_json(self) -> dict[str, object]:
        """One entry of `regressions`."""
        return {
            "metric": self.metric,
            "baseline": self.baseline,
            "now": self.now,
            "cause": self.cause,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The prediction with what speaks against it; `failures` empty means yes."""

    prediction: Prediction
    failures: tuple[str, ...]
    regressions: tuple[Regression, ...]
    remedies: tuple[Remedy, ...]
    warnings: tuple[str, ...]
    configuration: Mapping[str, object]
    made_with: Mapping[str, object]

    @property
    def passed(self) -> bool:
        """Whether the answer is yes."""
        return not self.failures

    def to_json(self) -> dict[str, object]:
        """`planner check --json`: evaluate's object with margin, regressions and what failed."""
        return self.prediction.to_json() | {
            "margin_bytes": self.prediction.memory.margin_bytes,
            "passed": self.passed,
            "failures": list(self.failures),
            "regressions": [regression.to_json() for regression in self.regressions],
            "remedies": [remedy.to_json() for remedy in self.remedies],
            "warnings": list(self.warnings),
            "configuration": dict(self.configuration),
            "made_with": dict(self.made_with),
        }


def check(
    situation: Situation,
    strategy: StrategyRequest,
    limits: Limits,
    baseline: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Evaluate a strategy and hold it against limits and a baseline (plan file, JSON of evaluate or check).

    Raises IllegalStrategy where the engine would refuse the strategy.
    """
    prediction = evaluate(situation, strategy)
    helpful = () if prediction.fits else remedies(situation, prediction)
    failures = _memory_failures(prediction, limits, helpful)
    warnings = prediction.warnings
    if prediction.verdict == "at_risk":
        risk = f"at risk: {prediction.oom_probability:.0%} probability of running out of memory"
        failures += (f"{risk}; free memory or drop --fail-at-risk",) if limits.fail_at_risk else ()
        warnings += () if limits.fail_at_risk else (risk,)
    now = origin_of(situation, prediction)
    regressions = _regressions(prediction, baseline, limits, now) if baseline is not None else ()
    failures += tuple(regression.detail for regression in regressions)
    shown = configuration(situation, prediction)
    return CheckReport(prediction, failures, regressions, helpful, warnings, shown, now.stamp)


def _memory_failures(prediction: Prediction, limits: Limits, helpful: tuple[Remedy, ...]) -> tuple[str, ...]:
    memory = prediction.memory
    capacity = format_bytes(memory.capacity_bytes)
    failures: tuple[str, ...] = ()
    if not prediction.fits:
        failures += (f"does not fit: {_shortage(prediction)}{_help(helpful)}",)
    fraction = limits.max_memory_fraction
    if fraction is not None and memory.device_used_bytes > fraction * memory.capacity_bytes:
        share = memory.device_used_bytes / memory.capacity_bytes
        failures += (f"uses {share:.1%} of {capacity}; at most {fraction:.1%} was asked for",)
    return failures


def _shortage(prediction: Prediction) -> str:
    """Which stage lacks how much, when, and what most of it is."""
    memory = prediction.memory
    worst = next(stage for stage in memory.stages if stage.stage == memory.worst_stage)
    cause, size = max(worst.by_cause.items(), key=lambda item: item[1])
    used, capacity = format_bytes(memory.device_used_bytes), format_bytes(memory.capacity_bytes)
    return (
        f"stage {memory.worst_stage} needs {used} of {capacity} in {memory.peak_phase.replace('_', ' ')}; "
        f"{format_bytes(size)} is {CAUSES.get(cause, cause)}"
    )


def _help(helpful: tuple[Remedy, ...]) -> str:
    """The fastest change that fits, in words."""
    if not helpful:
        return "; no change of one knob makes it fit, ask `planner plan`"
    first = helpful[0]
    return f"; {first.change} makes it {format_bytes(first.device_used_bytes)} at {first.slowdown:+.0%} step time"


def _regressions(
    prediction: Prediction, baseline: Mapping[str, Any], limits: Limits, now: Origin
) -> tuple[Regression, ...]:
    """What is worse than in the baseline."""
    before = baseline_prediction(baseline)
    cause = cause_of_change(origin_of_baseline(baseline, before), now)
    found: tuple[Regression, ...] = ()
    slowdown = prediction.step_s / before["step_s"] - 1
    if slowdown > limits.max_slowdown:
        detail = (
            f"step {format_seconds(prediction.step_s)} is {slowdown:.1%} slower than the baseline's "
            f"{format_seconds(before['step_s'])}; at most {limits.max_slowdown:.1%} is allowed "
            f"(moved by: {cause})"
        )
        found += (Regression("step_s", before["step_s"], prediction.step_s, cause, detail),)
    then, used = _used_bytes(before), prediction.memory.device_used_bytes
    grown = used / then - 1.0 if then else 0.0
    if then and limits.max_memory_growth is not None and grown > limits.max_memory_growth:
        detail = (
            f"memory {format_bytes(used)} is {grown:.1%} more than the baseline's {format_bytes(then)}; at most "
            f"{limits.max_memory_growth:.1%} is allowed (moved by: {cause})"
        )
        found += (Regression("device_used_bytes", then, used, cause, detail),)
    if VERDICTS.index(prediction.verdict) > VERDICTS.index(before["verdict"]):
        detail = f"verdict {prediction.verdict} was {before['verdict']} in the baseline (moved by: {cause})"
        found += (Regression("verdict", before["verdict"], prediction.verdict, cause, detail),)
    return found


def _used_bytes(before: Mapping[str, Any]) -> float:
    """The baseline's memory; 0 where it does not say."""
    memory = before.get("memory")
    used = memory.get("device_used_bytes") if isinstance(memory, Mapping) else None
    if isinstance(used, bool) or not isinstance(used, int | float) or used <= 0:
        return 0.0
    return float(used)


def baseline_prediction(baseline: Mapping[str, Any]) -> Mapping[str, Any]:
    """The prediction inside a baseline; raises BadInput where none has a step time and a verdict."""
    result = baseline.get("result")
    found: Any = result.get("best") if isinstance(result, Mapping) else baseline.get("best", baseline)
    step = found.get("step_s") if isinstance(found, Mapping) else None
    is_number = isinstance(step, int | float) and not isinstance(step, bool)
    usable = step is not None and is_number and MIN_STEP_S <= step <= MAX_STEP_S
    if not usable or found.get("verdict") not in VERDICTS:
        raise BadInput(
            "the baseline holds no prediction (step_s and verdict); "
            "give a plan file, or the JSON of evaluate or check",
            pointer="/baseline",
        )
    prediction: Mapping[str, Any] = found
    return prediction
