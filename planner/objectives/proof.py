"""The certificate of an objective in its own unit: what was tried and ruled out, how far from the best it can be."""

import math
from dataclasses import dataclass, field, replace

from planner.answers import PlanResult
from planner.objectives.asking import Asking, Changes
from planner.objectives.run import run_json

ROUNDING = 1e-9

OUTCOMES = ("fits", "too_slow", "does_not_fit", "not_better", "open")
"""Of a point: a plan was found; proved slower than asked; proved that nothing legal fits; proved no better than the
best without solving it; not settled in time."""


@dataclass(frozen=True, slots=True)
class Point:
    """One question that was asked: what was changed, how it ended, the value found and what no plan there can beat."""

    changes: Changes
    outcome: str
    value: float | None = None
    bound: float | None = None

    def to_json(self) -> dict[str, object]:
        """One entry of `points`."""
        return {**self.changes, "outcome": self.outcome, "value": self.value, "bound": self.bound}


@dataclass(frozen=True, slots=True)
class Proof:
    """`bound` is what no plan of the declared space beats; `gap` = |value - bound| / value, None while anything is open
    that could be unboundedly better. `sense` is least or most."""

    objective: str
    unit: str
    sense: str
    value: float | None
    bound: float | None
    points: tuple[Point, ...]
    space: dict[str, object] = field(default_factory=dict)
    assumption: str = ""

    @property
    def gap(self) -> float | None:
        """Distance of the value from the bound, as a share of the value."""
        if self.value is None or self.bound is None or not math.isfinite(self.bound):
            return None
        return abs(self.value - self.bound) / self.value if self.value else 0.0

    def to_json(self) -> dict[str, object]:
        """The `proof` object of the certificate."""
        return {
            "objective": self.objective,
            "unit": self.unit,
            "sense": self.sense,
            "value": self.value,
            "bound": self.bound,
            "gap": self.gap,
            "space": self.space,
            "assumption": self.assumption,
            "points": [point.to_json() for point in self.points],
        }


def with_proof(result: PlanResult, proof: Proof, asking: Asking, changes: Changes) -> PlanResult:
    """A step-time result as the answer of another objective: its status says how sure that objective is.

    The certificate's counts and step bound stay those of the question that won; `proof` covers all questions.
    """
    status = result.status
    if result.best is not None:
        # Rounding apart: values and bounds are products of the same factor with steps and bounds of steps.
        closed = proof.gap is not None and proof.gap <= asking.search.gap + ROUNDING
        status = "optimal" if closed else "feasible"
    certificate = replace(
        result.certificate, objective=proof.objective, wall_s=asking.wall_s, proof=proof.to_json()
    )
    answer = replace(result, status=status, certificate=certificate, changes={**result.changes, **changes})
    return with_run(answer, asking)


def with_run(result: PlanResult, asking: Asking) -> PlanResult:
    """The days, cost and energy of the run beside the best plan, where its length was stated."""
    if result.best is None or asking.search.run.tokens is None:
        return result
    answered = asking.at(result.changes) or asking.situation
    return replace(result, run=run_json(asking.terms(answered), result.best))
