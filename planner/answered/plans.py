"""Plans and checks, read back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.answered.parts import STRANGE, prediction_of, strange, value_of
from planner.answers import Certificate, PlanResult, Prediction, Relaxation
from planner.checking import CheckReport, Regression
from planner.remedies import Remedy
from planner.situation import Situation

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an answer that is shown as it came."""

    values: Json
    text: str = ""

    def to_json(self) -> dict[str, object]:
        """Its JSON object."""
        return dict(self.values)

    def sentence(self) -> str:
        """The same for people, where its sender said it."""
        return self.text


def plan_result(situation: Situation, found: Json) -> PlanResult:
    """The result of a plan; raises BadInput where the object is not one."""
    try:
        front, sure = found.get("front"), found.get("confidence")
        return PlanResult(
            status=found["status"],
            best=prediction_of(situation, found["best"]) if found["best"] else None,
            alternatives=tuple(prediction_of(situation, other) for other in found["alternatives"]),
            certificate=value_of(Certificate, found["certificate"]),
            relaxations=tuple(value_of(Relaxation, each) for each in found["relaxations"]),
            reason=found["reason"],
            changes=found.get("changes", {}),
            run=found.get("run"),
            front=Part(front) if front else None,
            confidence=Part(sure, str(sure.get("sentence", ""))) if sure else None,
        )
    except STRANGE as error:
        raise strange("plan", error) from None


def prediction(situation: Situation, found: Json) -> Prediction:
    """A prediction; raises BadInput where the object is not one."""
    try:
        return prediction_of(situation, found)
    except STRANGE as error:
        raise strange("evaluation", error) from None


def check_report(situation: Situation, found: Json) -> CheckReport:
    """The report of a check; raises BadInput where the object is not one."""
    try:
        return CheckReport(
            prediction_of(situation, found),
            tuple(found["failures"]),
            tuple(value_of(Regression, each) for each in found["regressions"]),
            tuple(value_of(Remedy, each) for each in found["remedies"]),
            tuple(found["warnings"]),
            found["configuration"],
            found["made_with"],
        )
    except STRANGE as error:
        raise strange("check", error) from None
