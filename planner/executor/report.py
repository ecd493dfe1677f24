"""What ran beside what was predicted: step times, rates, loss, memory by rank, and where the two part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from planner.answers import Prediction
from planner.executor.mesh import coordinates
from planner.executor.request import RunOrder
from planner.plan_file import resolved_request
from planner.request import SearchRequest

FIRST_STEADY: Final = 2
"""The first step allocates optimizer states and warms up; steps are counted from 1 and judged from here."""
COMMUNICATIONS: Final = ("tp", "cp", "ep", "pp", "dp")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step over all ranks. `step_s` is the slowest rank's; bytes and processor seconds are by rank."""

    step: int
    step_s: float
    loss: float
    grad_norm: float
    lr: float
    tokens: int
    memory_bytes: tuple[float, ...]
    reserved_bytes: tuple[float, ...]
    processor_s: tuple[float, ...]
    next_sample: int = 0
    """Position in the data after the step."""
    is_first: bool = False
    """The first step of its process, which allocates optimizer states and warms up."""
    is_saving: bool = False
    """A checkpoint was being written meanwhile: its copies are in the bytes of a CPU."""

    def at(self, *, next_sample: int, is_first: bool, is_saving: bool) -> "StepRecord":
        """The record with where in the run it stands."""
        return replace(self, next_sample=next_sample, is_first=is_first, is_saving=is_saving)

    @property
    def tokens_per_s(self) -> float:
        """Trained tokens (vision: samples) per second over all ranks."""
        return self.tokens / self.step_s

    def to_event(self) -> dict[str, object]:
        """The line of `--progress jsonl`."""
        return {
            "event": "step",
            "step": self.step,
            "step_s": self.step_s,
            "tokens_per_s": self.tokens_per_s,
            "loss": self.loss,
            "grad_norm": self.grad_norm,
            "lr": self.lr,
            "tokens": self.tokens,
            "memory_bytes": list(self.memory_bytes),
            "reserved_bytes": list(self.reserved_bytes),
            "processor_s": list(self.processor_s),
            "next_sample": self.next_sample,
            "first": self.is_first,
            "saving": self.is_saving,
        }


def step_of_event(event: Mapping[str, Any]) -> StepRecord:
    """The record that a line was made of."""
    return StepRecord(
        step=int(event["step"]),
        step_s=float(event["step_s"]),
        loss=_number(event["loss"]),
        grad_norm=_number(event["grad_norm"]),
        lr=float(event["lr"]),
        tokens=int(event["tokens"]),
        memory_bytes=tuple(float(value) for value in event["memory_bytes"]),
        reserved_bytes=tuple(float(value) for value in event["reserved_bytes"]),
        processor_s=tuple(float(value) for value in event["processor_s"]),
        next_sample=int(event.get("next_sample", 0)),
        is_first=bool(event.get("first", False)),
        is_saving=bool(event.get("saving", False)),
    )


@dataclass(frozen=True, slots=True)
class RunReport:
    """A finished run. `end` is what the workers said at its end: device, position, profiles by rank."""

    order: RunOrder
    steps: tuple[StepRecord, ...]
    prediction: Prediction
    end: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1
    told: tuple[Mapping[str, Any], ...] = ()
    """Events beside the steps: restarts, where the run went on, checkpoints."""

    @property
    def steady(self) -> tuple[StepRecord, ...]:
        """Steps that are judged: neither a process's first nor beside a checkpoint, where there are others."""
        warm = tuple(step for step in self.steps if not step.is_first)
        return tuple(step for step in warm if not step.is_saving) or warm or self.steps

    @property
    def step_s(self) -> float:
        """Median step, in seconds."""
        return median(s.step_s for s in self.steady)

    @property
    def processor_s(self) -> float:
        """Median over steps of the processor seconds of all ranks together."""
        return median(sum(s.processor_s) for s in self.steady)

    @property
    def peak_by_rank(self) -> tuple[float, ...]:
        """Largest bytes of each rank over the steady steps."""
        return tuple(max(values) for values in zip(*(s.memory_bytes for s in self.steady), strict=True))

    @property
    def reserved_by_rank(self) -> tuple[float, ...]:
        """Largest reserved bytes of each rank over the steady steps."""
        return tuple(max(values) for values in zip(*(s.reserved_bytes for s in self.steady), strict=True))

    def to_json(self) -> dict[str, object]:
        """`planner run --json`."""
        return {
            "ran": True,
            "steps": len(self.steps),
            "world_size": self.order.world_size,
            "engine": self.prediction.engine,
            "strategy": self.order.strategy.to_json(),
            "request": resolved_request(self.order.situation, SearchRequest()).model_dump(mode="json"),
            "options": self.order.options.model_dump(mode="json"),
            "attempts": self.attempts,
            "end": {key: value for key, value in self.end.items() if key not in ("event", "profiles")},
            "restarts": self._told("restarted"),
            "resumed": next(iter(self._told("resumed")[-1:]), None),
            "checkpoints": self._told("checkpoint"),
            "weights": next(iter(self._told("weights")[-1:]), None),
            "saved": next(iter(self._told("saved")[-1:]), None),
            "measured": self._measured() if self.steps else None,
            "predicted": self._predicted(),
            "ratio": self._ratio() if self.steps else None,
            "parts": {"stages": self._stages() if self.steps else [], "time": self._times()},
            "curve": [s.to_event() for s in self.steps],
        }

    def _told(self, name: str) -> list[dict[str, Any]]:
        """Events of one kind, without their name."""
        return [
            {key: value for key, value in event.items() if key != "event"}
            for event in self.told
            if event["event"] == name
        ]

    def _measured(self) -> dict[str, object]:
        steady = self.steady
        return {
            "step_s": self.step_s,
            "step_s_min": min(s.step_s for s in steady),
            "step_s_max": max(s.step_s for s in steady),
            "processor_s": self.processor_s,
            "unit": self.order.unit,
            "tokens_per_s": median(s.tokens_per_s for s in steady),
            "peak_bytes": max(self.peak_by_rank),
            "peak_reserved_bytes": max(self.reserved_by_rank),
            "memory_by_rank": list(self.peak_by_rank),
            "first_loss": self.steps[0].loss,
            "last_loss": self.steps[-1].loss,
        }

    def _predicted(self) -> dict[str, object]:
        found = self.prediction
        return {
            "step_s": found.step_s,
            "step_s_low": found.step_s_low,
            "step_s_high": found.step_s_high,
            "peak_bytes": found.memory.peak_allocated_bytes,
            "peak_reserved_bytes": found.memory.peak_reserved_bytes,
            "breakdown_s": dict(found.breakdown_s),
        }

    def _ratio(self) -> dict[str, object]:
        """Predicted / measured."""
        memory = self.prediction.memory
        return {
            "step_s": ratio(self.prediction.step_s, self.step_s),
            "peak_bytes": ratio(memory.peak_allocated_bytes, max(self.peak_by_rank)),
        }

    def _stages(self) -> list[dict[str, object]]:
        """Memory of each pipeline rank: the largest of its ranks beside the prediction."""
        measured: dict[int, float] = {}
        for rank, value in enumerate(self.peak_by_rank):
            stage = coordinates(self.order.strategy, rank).pp
            measured[stage] = max(measured.get(stage, 0.0), value)
        return [
            {
                "stage": stage.stage,
                "predicted_bytes": stage.allocated_bytes,
                "measured_bytes": measured[stage.stage],
                "ratio": ratio(stage.allocated_bytes, measured[stage.stage]),
            }
            for stage in self.prediction.memory.stages
        ]

    def _times(self) -> dict[str, object] | None:
        """Compute and communication of a step, where the run was profiled: the rank that waits least."""
        profiles: Sequence[Mapping[str, float]] = self.end.get("profiles") or ()
        if not profiles:
            return None
        busiest = min(profiles, key=lambda profile: profile["communication_s"])
        predicted = self.prediction.breakdown_s
        return {
            "communication": {
                "measured_s": busiest["communication_s"],
                "predicted_s": sum(predicted.get(f"{axis}_communication", 0.0) for axis in COMMUNICATIONS),
            },
            "rest": {
                "measured_s": busiest["rest_s"],
                "predicted_s": sum(
                    value for key, value in predicted.items() if not key.endswith("_communication")
                ),
            },
            "by_rank": list(profiles),
        }


def ratio(predicted: float, measured: float) -> float | None:
    """Predicted / measured; None where nothing was measured."""
    return predicted / measured if measured > 0 else None


def _number(value: Any) -> float:
    """A number; JSON has none for what is not finite."""
    return float("nan") if value is None else float(value)
