"""What the planner answers, as plain values with their contract JSON (docs: design section 9)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pydantic import ConfigDict, with_config

from cost_models.specs.model import Assumed
from cost_models.specs.strategy import Strategy

BREAKDOWN_CAUSES = (
    "compute",
    "tp_communication",
    "cp_communication",
    "ep_communication",
    "pp_communication",
    "pp_bubble",
    "dp_communication",
    "optimizer",
    "other",
)

CLOSED: Final = ConfigDict(extra="forbid")
"""Parts whose fields are their JSON's keys; the service's schemas are made of them and know no other keys."""


@with_config(CLOSED)
@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one pipeline rank at its peak instant, in bytes; `by_cause` sums to `allocated_bytes`."""

    stage: int
    layers: tuple[str, ...]
    allocated_bytes: float
    reserved_bytes: float
    device_used_bytes: float
    by_cause: Mapping[str, float]
    by_phase: Mapping[str, float]
    group: str = ""
    """Device groups of the rank, where the cluster has several."""
    capacity_bytes: float = 0.0
    by_phase_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The causes of every phase; those of a phase sum to `by_phase`."""

    def to_json(self) -> dict[str, object]:
        """The contract's stage object; group and capacity are said where ranks differ in them."""
        own = {"group": self.group, "capacity_bytes": self.capacity_bytes} if self.group else {}
        return own | {
            "stage": self.stage,
            "layers": list(self.layers),
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
            "device_used_bytes": self.device_used_bytes,
            "by_cause": dict(self.by_cause),
            "by_phase": dict(self.by_phase),
            "by_phase_cause": {phase: dict(causes) for phase, causes in self.by_phase_cause.items()},
        }


@with_config(CLOSED)
@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """Memory of the worst rank, and of every pipeline rank."""

    capacity_bytes: float
    peak_allocated_bytes: float
    peak_reserved_bytes: float
    device_used_bytes: float
    host_bytes: float
    margin_bytes: float
    worst_stage: int
    peak_phase: str
    stages: tuple[StageMemory, ...]

    def to_json(self) -> dict[str, object]:
        """The contract's memory object."""
        names = (
            "capacity_bytes",
            "peak_allocated_bytes",
            "peak_reserved_bytes",
            "device_used_bytes",
            "host_bytes",
            "margin_bytes",
            "worst_stage",
            "peak_phase",
        )
        return {name: getattr(self, name) for name in names} | {"stages": [s.to_json() for s in self.stages]}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What one strategy costs. Seconds, bytes, FLOP; `breakdown_s` sums to `step_s`."""

    fits: bool
    verdict: str
    oom_probability: float
    step_s: float
    step_s_low: float
    step_s_high: float
    tokens_per_s_per_device: float | None
    samples_per_s_per_device: float
    model_flops_per_s_per_device: float
    mfu: float
    breakdown_s: Mapping[str, float]
    recompute_s: float
    critical_stage: int
    memory: MemoryPrediction
    strategy: Strategy
    parameters: int
    active_parameters: int
    provenance: Mapping[str, str]
    assumed: tuple[Assumed, ...]
    options: Mapping[str, object]
    engine: str
    warnings: tuple[str, ...] = ()
    reader: str = ""
    """Who read the model: huggingface, layers, transformers, torch_module."""

    def to_json(self) -> dict[str, object]:
        """`planner evaluate --json`."""
        names = (
            "fits",
            "verdict",
            "oom_probability",
            "step_s",
            "step_s_low",
            "step_s_high",
            "tokens_per_s_per_device",
            "samples_per_s_per_device",
            "model_flops_per_s_per_device",
            "mfu",
        )
        values: dict[str, object] = {name: getattr(self, name) for name in names}
        return values | {
            "breakdown_s": dict(self.breakdown_s),
            "recompute_s": self.recompute_s,
            "critical_stage": self.critical_stage,
            "memory": self.memory.to_json(),
            "strategy": self.strategy.to_json(),
            "model": {
                "parameters": self.parameters,
                "active_parameters": self.active_parameters,
                "reader": self.reader,
            },
            "engine": self.engine,
            "options": dict(self.options),
            "provenance": dict(self.provenance),
            "assumed": [
                {"key": a.key, "value": a.value, "changes_parameters": a.changes_parameters}
                for a in self.assumed
            ],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """How close the best plan is to the optimum of the whole declared space, and where every mesh went."""

    objective: str
    lower_bound_s: float | None
    gap: float | None
    meshes_total: int
    meshes_illegal: Mapping[str, int]
    meshes_out_of_memory: int
    meshes_bounded: int
    meshes_solved: int
    meshes_open: int
    space: Mapping[str, object]
    wall_s: float
    proof: Mapping[str, object] | None = None
    """The certificate of an objective other than step time, in its own unit (planner/objectives/proof.py)."""

    def to_json(self) -> dict[str, object]:
        """The contract's certificate object."""
        proof = {} if self.proof is None else {"proof": dict(self.proof)}
        return proof | {
            "objective": self.objective,
            "lower_bound_s": self.lower_bound_s,
            "gap": self.gap,
            "meshes_total": self.meshes_total,
            "meshes_illegal": dict(self.meshes_illegal),
            "meshes_out_of_memory": self.meshes_out_of_memory,
            "meshes_bounded": self.meshes_bounded,
            "meshes_solved": self.meshes_solved,
            "meshes_open": self.meshes_open,
            "space": dict(self.space),
            "wall_s": self.wall_s,
        }


@with_config(CLOSED)
@dataclass(frozen=True, slots=True)
class Relaxation:
    """One change that makes an infeasible request feasible: what to change, the sentence, the step it would take."""

    change: str
    detail: str
    step_s: float | None = None
    cost: str = "free"
    """What it costs the user: free, restriction, numerics, hardware or training (planner/relax/changes.py)."""
    used_bytes: float | None = None

    def to_json(self) -> dict[str, object]:
        """One entry of `relaxations`."""
        return {
            "change": self.change,
            "detail": self.detail,
            "step_s": self.step_s,
            "cost": self.cost,
            "used_bytes": self.used_bytes,
        }


class HasJson(Protocol):
    """A part of an answer that its own module defines."""

    def to_json(self) -> dict[str, object]:
        """Its JSON object."""
        ...


class Confidence(HasJson, Protocol):
    """How sure an answer is of itself."""

    def sentence(self) -> str:
        """The same for people; empty where there is nothing to say."""
        ...


@dataclass(frozen=True, slots=True)
class PlanResult:
    """`planner plan --json`: status is optimal, feasible, infeasible or unknown."""

    status: str
    best: Prediction | None
    alternatives: tuple[Prediction, ...]
    certificate: Certificate
    relaxations: tuple[Relaxation, ...] = ()
    reason: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What the best plan's request has other than the one asked: devices, global_batch, seq_len, reserve_bytes, and of
    what may vary precision, optimizer and options."""
    run: Mapping[str, object] | None = None
    """Days, cost and energy of the run, where its length was stated (planner/objectives/run.py)."""
    front: HasJson | None = None
    """Plans none of which is beaten in time, memory and devices at once (planner/objectives/front.py)."""
    confidence: Confidence | None = None
    """How sure it is that the best plan is the best, and a simpler one inside the noise (planner/choice.py)."""

    def to_json(self) -> dict[str, object]:
        """The contract's plan object."""
        run = {} if self.run is None else {"run": dict(self.run)}
        changes = {"changes": dict(self.changes)} if self.changes else {}
        sure = {"confidence": self.confidence.to_json()} if self.confidence else {}
        front = {"front": self.front.to_json()} if self.front else {}
        return (
            run
            | changes
            | sure
            | front
            | {
                "status": self.status,
                "best": self.best.to_json() if self.best else None,
                "alternatives": [a.to_json() for a in self.alternatives],
                "certificate": self.certificate.to_json(),
                "relaxations": [r.to_json() for r in self.relaxations],
                "reason": self.reason,
            }
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is; bounds never worsen."""

    phase: str
    lower_bound_s: float | None = None
    best_step_s: float | None = None
    gap: float | None = None
    meshes_done: int = 0
    meshes_total: int = 0
    detail: Mapping[str, object] = field(default_factory=dict)


def finite(value: object) -> object:
    """The same JSON value with every non-finite number replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
