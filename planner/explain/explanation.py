"""Why this plan: what binds every stage, what each axis costs and saves, runners-up, what better hardware would buy."""

from collections.abc import Sequence
from dataclasses import dataclass

from cost_models.specs.strategy import Strategy, StrategyRequest
from planner.answers import Prediction
from planner.evaluation import Context, evaluate, evaluate_many
from planner.explain.axes import AxisCost, axis_costs
from planner.explain.binding import StageBinding, bindings
from planner.explain.differences import Difference, difference
from planner.explain.facts import LayoutFacts, layout_facts
from planner.explain.memory import use
from planner.explain.pinned import COARSE_GAP, Budget
from planner.explain.sensitivity import Sensitivity, sensitivities
from planner.odds import probability_faster
from planner.request import SearchRequest
from planner.situation import Situation

AXES_SHARE = 0.6
"""Share of the budget that the axes may take; better hardware gets the rest."""


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """Another plan, what differs, and how sure it is that the first beats it."""

    prediction: Prediction
    difference: Difference
    plan_faster: float

    def to_json(self) -> dict[str, object]:
        """One entry of `runners_up`."""
        return {
            "step_s": self.prediction.step_s,
            "verdict": self.prediction.verdict,
            "strategy": self.prediction.strategy.to_json(),
            "differs": self.difference.knob_text(),
            "difference": self.difference.to_json(),
            "probability_plan_faster": self.plan_faster,
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """`planner explain`: one plan and everything that was found out about it."""

    plan: Prediction
    facts: LayoutFacts
    stages: tuple[StageBinding, ...]
    axes: tuple[AxisCost, ...]
    runners_up: tuple[RunnerUp, ...]
    sensitivity: tuple[Sensitivity, ...]

    def to_json(self) -> dict[str, object]:
        """`planner explain --json`."""
        return {
            "plan": self.plan.to_json(),
            "facts": self.facts.to_json(),
            "summary": self.summary(),
            "faster": self.faster.strategy.to_json() if self.faster else None,
            "stages": [stage.to_json() for stage in self.stages],
            "axes": [axis.to_json() for axis in self.axes],
            "runners_up": [other.to_json() for other in self.runners_up],
            "sensitivity": [change.to_json() for change in self.sensitivity],
        }

    def summary(self) -> str:
        """What binds the plan, in one sentence."""
        slowest = max(self.stages, key=lambda stage: stage.busy_s)
        share = slowest.shares[slowest.binding]
        full = [stage.stage for stage in self.stages if stage.memory_binds]
        text = (
            f"stage {slowest.stage} sets the pace, {share:.0%} of its time follows "
            f"{slowest.binding.replace('_', ' ')}; the fullest stage {use(self.plan)}"
        )
        room = f"; no room for one more block on {len(full)} of {len(self.stages)} stages" if full else ""
        return text + room + self._faster_text()

    @property
    def faster(self) -> Prediction | None:
        """The fastest layout that was found on the way and surely fits, where it beats the plan by a percent."""
        found = [other.prediction for axis in self.axes for other in axis.alternatives]
        fitting = [p for p in found if p is not None and p.verdict == "fits"]
        best = min(fitting, key=lambda p: p.step_s, default=None)
        return best if best is not None and best.step_s < (1.0 - COARSE_GAP) * self.plan.step_s else None

    def _faster_text(self) -> str:
        better = self.faster
        if better is None:
            return ""
        share = 1.0 - better.step_s / self.plan.step_s
        return f"; a faster layout is known: {better.strategy.mesh_text()} takes {share:.1%} less"


def explain(
    situation: Situation,
    search: SearchRequest,
    strategy: StrategyRequest | Strategy,
    others: Sequence[StrategyRequest | Strategy] = (),
    max_seconds: float = 30.0,
) -> Explanation:
    """Explain a strategy; `others` are its runners-up. Searches stop after `max_seconds` and neighbours are priced."""
    plan = evaluate(situation, strategy)
    axes = axis_costs(situation, search, plan, Budget.of(AXES_SHARE * max_seconds))
    rest = Budget.of((1.0 - AXES_SHARE) * max_seconds)
    found = [other.prediction for axis in axes for other in axis.alternatives if other.prediction is not None]
    known_s = min([plan.step_s, *(other.step_s for other in found if other.verdict == "fits")])
    return Explanation(
        plan,
        layout_facts(situation, plan.strategy),
        bindings(Context.of(situation), plan),
        axes,
        _runners_up(situation, plan, others),
        sensitivities(situation, search, plan, known_s, rest),
    )


def _runners_up(
    situation: Situation, plan: Prediction, others: Sequence[StrategyRequest | Strategy]
) -> tuple[RunnerUp, ...]:
    priced = [p for p in evaluate_many(situation, list(others)) if isinstance(p, Prediction)]
    return tuple(
        RunnerUp(other, difference(plan, other), probability_faster((plan, situation), (other, situation)))
        for other in sorted(priced, key=lambda p: p.step_s)
    )
