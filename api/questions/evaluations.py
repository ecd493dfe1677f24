"""Evaluations: what strategies cost, many at once."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from api.questions.sources import strategy_of
from api.schemas import StrategyInput
from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest
from planner.answers import Prediction
from planner.request import ClusterInput, ModelInput
from planner.situation import Situation, resolve

MAX_STRATEGIES: Final = 1000
MAX_STAGES: Final = 32_000
"""Pipeline ranks of all strategies together; each is half a kilobyte of the answer and a tenth of a millisecond."""


class EvaluationRequest(Frozen):
    """Strategies to predict for one model, cluster and job."""

    model: ModelInput
    cluster: ClusterInput
    job: JobRequest
    strategies: Annotated[list[StrategyInput], Field(min_length=1, max_length=MAX_STRATEGIES)]


def evaluate_all(
    request: EvaluationRequest, problem_of: Callable[[IllegalStrategy], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One `{evaluation}` or `{problem}` a strategy, in order; raises BadInput for what is wrong with all of them.

    An evaluation is the object of `planner evaluate --json`.
    """
    from planner.evaluation import evaluate_many

    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    parsed = [_parsed(strategy) for strategy in request.strategies]
    legal = [strategy for strategy in parsed if not isinstance(strategy, IllegalStrategy)]
    _check_stages(sum(strategy.pp or 1 for strategy in legal))
    predictions = iter(evaluate_many(situation, legal))
    answers = [s if isinstance(s, IllegalStrategy) else next(predictions) for s in parsed]
    of = _origin(situation)
    return [
        {"problem": _at(problem_of(answer), index)}
        if isinstance(answer, IllegalStrategy)
        else {"evaluation": answer.to_json() | of(answer)}
        for index, answer in enumerate(answers)
    ]


def _check_stages(num_stages: int) -> None:
    if num_stages > MAX_STAGES:
        raise BadInput(
            f"the strategies have {num_stages:,} pipeline stages together; at most {MAX_STAGES:,} are evaluated at "
            "once, ask in parts",
            pointer="/strategies",
        )


def _origin(situation: Situation) -> Callable[[Prediction], dict[str, Any]]:
    """What says what an evaluation is of and what made it; the second is the same for all."""
    from planner.attribution import configuration, stamp

    made_with = stamp(situation)
    return lambda prediction: {
        "configuration": configuration(situation, prediction),
        "made_with": made_with,
    }


def _parsed(strategy: StrategyInput) -> Any:
    try:
        return strategy_of(strategy)
    except IllegalStrategy as error:
        return error


def _at(problem: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The problem of one item; its pointers name the item."""
    found = {key: value for key, value in problem.items() if key != "request_id"}
    return found | {"errors": [fault | {"pointer": f"/strategies/{index}"} for fault in found["errors"]]}
