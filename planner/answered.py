"""Answers read back from their JSON objects, as another planner sent them: the numbers are those that were sent."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from cost_models.engines import complete
from cost_models.errors import BadInput
from cost_models.specs.model import Assumed
from cost_models.specs.strategy import Strategy, strategy_from_mapping
from planner.answers import (
    Certificate,
    MemoryPrediction,
    PlanResult,
    Prediction,
    Relaxation,
    StageMemory,
)
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
            best=_prediction(situation, found["best"]) if found["best"] else None,
            alternatives=tuple(_prediction(situation, other) for other in found["alternatives"]),
            certificate=_of(Certificate, found["certificate"]),
            relaxations=tuple(_of(Relaxation, each) for each in found["relaxations"]),
            reason=found["reason"],
            changes=found.get("changes", {}),
            run=found.get("run"),
            front=Part(front) if front else None,
            confidence=Part(sure, str(sure.get("sentence", ""))) if sure else None,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _strange("plan", error) from None


def prediction(situation: Situation, found: Json) -> Prediction:
    """A prediction; raises BadInput where the object is not one."""
    try:
        return _prediction(situation, found)
    except (KeyError, TypeError, AttributeError) as error:
        raise _strange("evaluation", error) from None


def check_report(situation: Situation, found: Json) -> CheckReport:
    """The report of a check; raises BadInput where the object is not one."""
    try:
        return CheckReport(
            _prediction(situation, found),
            tuple(found["failures"]),
            tuple(_of(Regression, each) for each in found["regressions"]),
            tuple(_of(Remedy, each) for each in found["remedies"]),
            tuple(found["warnings"]),
            found["configuration"],
            found["made_with"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _strange("check", error) from None


def _prediction(situation: Situation, found: Json) -> Prediction:
    counted, memory = found["model"], found["memory"]
    stages = tuple(
        _of(StageMemory, {**stage, "layers": tuple(stage["layers"])}) for stage in memory["stages"]
    )
    more = {
        "memory": _of(MemoryPrediction, {**memory, "stages": stages}),
        "strategy": _strategy(situation, found["strategy"]),
        "parameters": counted["parameters"],
        "active_parameters": counted["active_parameters"],
        "reader": counted["reader"],
        "assumed": tuple(Assumed(**each) for each in found["assumed"]),
        "warnings": tuple(found["warnings"]),
    }
    made: Prediction = _of(Prediction, {**found, **more})
    return made


def _strategy(situation: Situation, found: Json) -> Strategy:
    """The complete strategy of its object; no rule is asked for, its sender has."""
    return complete(situation.engine, situation.facts, strategy_from_mapping(found))


def _of(kind: type[Any], values: Json) -> Any:
    """A value object from the keys that it knows; a newer sender may say more."""
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in values.items() if key in known})


def _strange(what: str, error: Exception) -> BadInput:
    return BadInput(
        f"the server's answer is no {what} of this version ({error!r:.100}); use one version on both"
    )
