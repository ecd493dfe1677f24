"""A step-time search that is a table: what the objectives make of it can be compared with going through the table."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.answers import Certificate, PlanResult, Prediction
from planner.evaluation import evaluate
from planner.objectives import StepOracle, plan_for
from planner.request import SearchRequest
from planner.situation import Situation

EMPTY = Certificate("step_time", None, None, 0, {}, 0, 0, 0, 0, {}, 0.0)


@dataclass
class TableOracle:
    """Steps by number of devices (absent: nothing fits), bounds a share below them, a search that is exact."""

    steps: Mapping[int, float]
    prediction: Prediction
    tightness: float = 0.9
    fits: Callable[[Situation, SearchRequest], bool] = lambda situation, search: True
    asked: list[int] = field(default_factory=list)

    def fastest(self, situation, search, report, *, explain=True, within_s=math.inf):
        """The table's step, as a certified plan where it is below the limit."""
        devices = situation.cluster.num_devices
        self.asked.append(devices)
        step_s = self.steps.get(devices, math.inf) if self.fits(situation, search) else math.inf
        if not math.isfinite(step_s):
            return PlanResult("infeasible", None, (), EMPTY)
        certificate = replace(EMPTY, lower_bound_s=min(step_s, within_s), gap=0.0)
        if step_s >= within_s:
            return PlanResult("infeasible", None, (), certificate)
        return PlanResult("optimal", replace(self.prediction, step_s=step_s), (), certificate)

    def least(self, situation, search):
        """A bound below the table's step."""
        return self.tightness * self.steps.get(situation.cluster.num_devices, math.inf)

    def plan(self, situation, **search):
        """The answer of an objective."""
        return self.answer(situation, SearchRequest(**search))

    def answer(self, situation, search):
        """The same, called like `make_plan`."""
        return plan_for(situation, search, StepOracle(self.fastest, self.least), lambda progress: None)


@pytest.fixture(scope="session")
def tiny(make_situation) -> Callable[[int], Situation]:
    """A small model on so many devices."""
    return lambda devices: make_situation("pythia-70m", "dgx-a100", devices, seq_len=2048, global_batch=48)


@pytest.fixture(scope="session")
def tables(tiny) -> Callable[..., TableOracle]:
    """A table of steps as a search."""
    prediction = evaluate(tiny(8), parse_strategy("tp=8"))
    return lambda steps, **more: TableOracle(steps, prediction, **more)
