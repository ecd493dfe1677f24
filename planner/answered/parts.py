"""What all answers are read back from: value objects by key, predictions, strategies."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from cost_models.engines import complete
from cost_models.errors import BadInput
from cost_models.specs.model import Assumed
from cost_models.specs.strategy import Strategy, strategy_from_mapping
from planner.answers import MemoryPrediction, Prediction, StageMemory
from planner.situation import Situation

Json = Mapping[str, Any]
STRANGE: Final = (KeyError, TypeError, AttributeError, ValueError)
"""What an object of another version raises where its keys are others."""


def prediction_of(situation: Situation, found: Json) -> Prediction:
    """A prediction of its object."""
    counted, memory = found["model"], found["memory"]
    stages = tuple(
        value_of(StageMemory, {**stage, "layers": tuple(stage["layers"])}) for stage in memory["stages"]
    )
    more = {
        "memory": value_of(MemoryPrediction, {**memory, "stages": stages}),
        "strategy": strategy_of(situation, found["strategy"]),
        "parameters": counted["parameters"],
        "active_parameters": counted["active_parameters"],
        "reader": counted["reader"],
        "assumed": tuple(Assumed(**each) for each in found["assumed"]),
        "warnings": tuple(found["warnings"]),
    }
    made: Prediction = value_of(Prediction, {**found, **more})
    return made


def strategy_of(situation: Situation, found: Json) -> Strategy:
    """The complete strategy of its object; no rule is asked for, its sender has."""
    return complete(situation.engine, situation.facts, strategy_from_mapping(found))


def value_of(kind: type[Any], values: Json) -> Any:
    """A value object from the keys that it knows; a newer sender may say more."""
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in values.items() if key in known})


def strange(what: str, error: Exception) -> BadInput:
    """What is raised for an object that is none of this version."""
    return BadInput(
        f"the server's answer is no {what} of this version ({error!r:.100}); use one version on both"
    )
