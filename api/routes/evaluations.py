"""Evaluations: what strategies cost, many at once."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.deps import WorkDep
from api.errors import problem_of_bad_input
from api.schemas import EvaluationRequest, ItemsBody, StrategyInput
from api.strict_route import StrictRoute
from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import StrategyRequest, parse_strategy, strategy_from_mapping
from planner.answers import finite

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"], route_class=StrictRoute)


@router.post("", response_model=ItemsBody)
async def evaluate_strategies(request: EvaluationRequest, work: WorkDep) -> JSONResponse:
    """One `{evaluation}` or `{problem}` a strategy, in order."""
    items = await work.evaluate(lambda: evaluate_all(request))
    return JSONResponse({"items": finite(items)})


def evaluate_all(request: EvaluationRequest) -> list[dict[str, Any]]:
    """Answers in the order of the strategies; raises BadInput for what is wrong with all of them."""
    from planner.evaluation import evaluate_many
    from planner.situation import resolve

    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    parsed = [parsed_strategy(strategy) for strategy in request.strategies]
    legal = [strategy for strategy in parsed if not isinstance(strategy, IllegalStrategy)]
    predictions = iter(evaluate_many(situation, legal))
    answers = [s if isinstance(s, IllegalStrategy) else next(predictions) for s in parsed]
    return [
        {"problem": _problem(answer, index)}
        if isinstance(answer, IllegalStrategy)
        else {"evaluation": answer.to_json()}
        for index, answer in enumerate(answers)
    ]


def parsed_strategy(strategy: StrategyInput) -> StrategyRequest | IllegalStrategy:
    """A strategy from text or an object, or what is wrong with it."""
    try:
        return parse_strategy(strategy) if isinstance(strategy, str) else strategy_from_mapping(strategy)
    except IllegalStrategy as error:
        return error


def _problem(error: IllegalStrategy, index: int) -> dict[str, Any]:
    """The problem of one item; its pointers name the item."""
    problem = problem_of_bad_input(error).to_json("")
    del problem["request_id"]
    faults = problem["errors"]
    if isinstance(faults, list):
        problem["errors"] = [fault | {"pointer": f"/strategies/{index}"} for fault in faults]
    return problem
