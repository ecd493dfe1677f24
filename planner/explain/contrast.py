"""A plan against another strategy: the verdict, what speaks for it, and one sentence that says it."""

from dataclasses import dataclass
from typing import Final

from cost_models.errors import Violation
from cost_models.units import format_seconds
from planner.answers import Certificate, Prediction
from planner.explain.differences import Difference
from planner.explain.memory import use

LONGEST_ASKED: Final = 60
"""Characters of what was asked that a sentence repeats."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A plan against another strategy.

    `verdict` is same, slower, faster, does_not_fit, illegal or unknown; `short` says what one that does not fit lacks.
    """

    asked: str
    verdict: str
    completed: bool
    plan: Prediction
    other: Prediction | None = None
    difference: Difference | None = None
    violations: tuple[Violation, ...] = ()
    certificate: Certificate | None = None
    plan_faster: float | None = None
    why: str = ""
    short: str = ""

    def sentence(self) -> str:
        """The answer in one sentence with its numbers."""
        if self.verdict == "illegal":
            return "illegal: " + ("; ".join(f"{v.rule}: {v.sentence()}" for v in self.violations) or self.why)
        if self.other is None or self.difference is None:
            return self.why
        shown = self.other.strategy.mesh_text()
        best = "leanest" if self.verdict == "does_not_fit" else "best"
        name = (
            f"the {best} layout {self._as_asked()} ({shown})" if self.completed else f"{self.asked} ({shown})"
        )
        if self.verdict == "does_not_fit":
            return f"does not fit: {name} {self.short}; the plan {use(self.plan)}"
        if self.verdict == "same":
            return f"{name} takes as long as the plan: {format_seconds(self.other.step_s)}"
        return f"{name} {self._pace()}"

    def _as_asked(self) -> str:
        """`with tp=4`, or, where many keys were named, only that they were kept to."""
        return f"with {self.asked}" if len(self.asked) <= LONGEST_ASKED else "as asked"

    def _pace(self) -> str:
        moved, other = self.difference, self.other
        if moved is None or other is None:
            return ""
        word = "more" if moved.step_s >= 0 else "less"
        where = f": {moved.where()}" if moved.where() else ""
        sure = f"; P(the plan is faster) {self.plan_faster:.0%}" if self.plan_faster is not None else ""
        bound = self.certificate.lower_bound_s if self.certificate else None
        proved = f"; no layout {self._as_asked()} takes less than {format_seconds(bound)}" if bound else ""
        return (
            f"takes {format_seconds(other.step_s)}, {format_seconds(abs(moved.step_s))} "
            f"({abs(moved.step_s) / moved.first_s:.1%}) {word} than the plan's {format_seconds(moved.first_s)}"
            f"{where}{sure}{proved}{self.risk()}"
        )

    def risk(self) -> str:
        """Why a layout that is legal and faster is no plan: it may run out of memory; empty where it may not."""
        other = self.other
        if other is None or other.verdict != "at_risk" or self.plan.verdict == "at_risk":
            return ""
        return (
            f"; it {use(other)} and is at risk, P(out of memory) {other.oom_probability:.0%}, which plans are with "
            "--allow-at-risk alone"
        )

    def to_json(self) -> dict[str, object]:
        """`planner explain --against --json` under `against`."""
        certificate = self.certificate
        return {
            "asked": self.asked,
            "verdict": self.verdict,
            "completed": self.completed,
            "strategy": self.other.strategy.to_json() if self.other else None,
            "prediction": self.other.to_json() if self.other else None,
            "difference": self.difference.to_json() if self.difference else None,
            "violations": [
                {"rule": v.rule, "detail": v.detail, "nearest": list(v.nearest), "source": v.source}
                for v in self.violations
            ],
            "lower_bound_s": certificate.lower_bound_s if certificate else None,
            "gap": certificate.gap if certificate else None,
            "probability_plan_faster": self.plan_faster,
            "why": self.why,
            "short": self.short,
            "sentence": self.sentence(),
        }
