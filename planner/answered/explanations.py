"""Explanations, contrasts and comparisons, read back.

Of layouts beside the plan an explanation sends the step, the verdict and the strategy alone; the rest of such a
prediction is the plan's and must not be shown.
"""

from collections.abc import Mapping
from dataclasses import replace

from cost_models.errors import Violation
from planner.answered.parts import STRANGE, Json, prediction_of, strange, strategy_of, value_of
from planner.answers import Certificate, Prediction
from planner.compare import Comparison, Side
from planner.explain import Contrast, Difference, Explanation
from planner.explain.axes import Alternative, AxisCost
from planner.explain.binding import StageBinding
from planner.explain.differences import StageDifference
from planner.explain.explanation import RunnerUp
from planner.explain.facts import LayoutFacts
from planner.explain.sensitivity import Sensitivity
from planner.situation import Situation


def explanation(situation: Situation, found: Json) -> Explanation:
    """An explanation of a plan; raises BadInput where the object is not one."""
    try:
        plan = prediction_of(situation, found["plan"])
        return Explanation(
            plan,
            _facts(found["facts"]),
            tuple(_stage(each) for each in found["stages"]),
            tuple(_axis(situation, plan, each) for each in found["axes"]),
            tuple(_runner_up(situation, plan, each) for each in found["runners_up"]),
            tuple(_sensitivity(situation, plan, each) for each in found["sensitivity"]),
        )
    except STRANGE as error:
        raise strange("explanation", error) from None


def contrast(situation: Situation, found: Json) -> Contrast:
    """A plan against another strategy; raises BadInput where the object is not one."""
    try:
        plan, against = prediction_of(situation, found["plan"]), found["against"]
        other = prediction_of(situation, against["prediction"]) if against["prediction"] else None
        bound, gap = against["lower_bound_s"], against["gap"]
        bounded = None if bound is None else Certificate("step_time", bound, gap, 0, {}, 0, 0, 0, 0, {}, 0.0)
        moved = against["difference"]
        return Contrast(
            asked=against["asked"],
            verdict=against["verdict"],
            completed=against["completed"],
            plan=plan,
            other=other,
            difference=_difference(moved, plan.step_s, other.step_s) if moved and other else None,
            violations=tuple(_violation(each) for each in against["violations"]),
            certificate=bounded,
            plan_faster=against["probability_plan_faster"],
            why=against["why"],
            short=against["short"],
        )
    except STRANGE as error:
        raise strange("explanation", error) from None


def comparison(situations: tuple[Situation, Situation], found: Json) -> Comparison:
    """Two plans side by side; raises BadInput where the object is not that."""
    try:
        first, second = (
            Side(situation, prediction_of(situation, side), _facts(side["facts"]))
            for situation, side in zip(situations, (found["first"], found["second"]), strict=True)
        )
        steps = (first.prediction.step_s, second.prediction.step_s)
        return Comparison(
            first,
            second,
            {key: _pair(pair) for key, pair in found["question"].items()},
            _difference(found["difference"], *steps),
            found["probability_first_faster"],
        )
    except STRANGE as error:
        raise strange("comparison", error) from None


def _pair(found: list[object]) -> tuple[object, object]:
    first, second = found
    return first, second


def _facts(found: Mapping[str, object]) -> LayoutFacts:
    renamed = {"in_flight_first_stage": "in_flight", "tokens_per_product": "tokens"}
    facts: LayoutFacts = value_of(LayoutFacts, {renamed.get(key, key): value for key, value in found.items()})
    return facts


def _difference(found: Json, first_s: float, second_s: float) -> Difference:
    memory = found["memory"]
    return Difference(
        knobs={key: _pair(pair) for key, pair in found["knobs"].items()},
        first_s=first_s,
        second_s=second_s,
        seconds=found["breakdown_s"],
        recompute_s=found["recompute_s"],
        worst_bytes=memory["worst_bytes"],
        worst_by_cause=memory["worst_by_cause"],
        stages=tuple(value_of(StageDifference, each) for each in memory["stages"]),
    )


def _stage(found: Json) -> StageBinding:
    flat = {**found, **found["memory"], "layers": tuple(found["layers"])}
    binding: StageBinding = value_of(StageBinding, flat)
    return binding


def _axis(situation: Situation, plan: Prediction, found: Json) -> AxisCost:
    others = (_alternative(situation, plan, found["axis"], each) for each in found["alternatives"])
    return AxisCost(found["axis"], found["value"], tuple(others))


def _alternative(situation: Situation, plan: Prediction, axis: str, found: Json) -> Alternative:
    other = _beside(situation, plan, found) if found["strategy"] else None
    moved = found["difference"]
    return Alternative(
        axis,
        found["change"],
        found["value"],
        found["how"],
        other,
        _difference(moved, plan.step_s, other.step_s) if moved and other else None,
        str(found["sentence"]).removeprefix(f"{axis} {found['value']}: "),
    )


def _runner_up(situation: Situation, plan: Prediction, found: Json) -> RunnerUp:
    other = _beside(situation, plan, found)
    moved = _difference(found["difference"], plan.step_s, other.step_s)
    return RunnerUp(other, moved, found["probability_plan_faster"])


def _sensitivity(situation: Situation, plan: Prediction, found: Json) -> Sensitivity:
    step_s, strategy = found["replanned_step_s"], found["strategy"]
    replanned = None
    if step_s is not None:
        replanned = replace(plan, step_s=step_s, strategy=strategy_of(situation, strategy))
    return Sensitivity(
        found["key"],
        found["change"],
        plan.step_s,
        found["best_known_step_s"],
        found["repriced_step_s"],
        replanned,
        found["why"],
    )


def _beside(situation: Situation, plan: Prediction, found: Json) -> Prediction:
    """A layout beside the plan: what was sent of it, in a copy of the plan's prediction."""
    strategy = strategy_of(situation, found["strategy"])
    return replace(plan, step_s=found["step_s"], verdict=found["verdict"], strategy=strategy)


def _violation(found: Json) -> Violation:
    return Violation(found["rule"], found["detail"], tuple(found["nearest"]), found["source"])
