"""The least memory of the fullest device, by bisection on a budget: a plan that fits a budget fits every larger one.

A budget is a reserve: usable = capacity - reserve. Each "no" of the search proves that no layout of the declared space
stays within the budget; each "yes" names a plan, whose own need is the next budget to get below.
"""

import math
from dataclasses import replace

from cost_models.device_memory import allocator_of, usable_per_used
from cost_models.errors import InvalidCluster
from planner.answers import PlanResult
from planner.evaluation import evaluate
from planner.objectives.asking import Asking
from planner.objectives.proof import Point, Proof, with_proof

LEAST_SHARE = 1e-3
"""Budgets below this share of the capacity are not asked."""

LEAST_RESOLUTION = 1e-4


def least_memory(asking: Asking) -> PlanResult:
    """The plan whose fullest device uses the least memory, the fastest of those that use no more."""
    refuse_mixed(asking)
    result = asking.as_asked()
    if result.best is None:
        return with_proof(result, _proof(asking, None, None, []), asking, {})
    points: list[Point] = []
    refused = result.best.memory.capacity_bytes * LEAST_SHARE
    kept = result.best.memory.device_used_bytes * margin(asking)
    wanted = 1.0 + max(asking.search.gap, LEAST_RESOLUTION) / 2.0
    while kept / refused > wanted and not asking.is_late:
        budget = math.sqrt(refused * kept)
        found = asking.fits(_reserve(result, budget))
        if found is None or found.status == "unknown":
            break
        points.append(Point({"usable_bytes": budget}, "fits" if found.best else "does_not_fit"))
        if found.best is None:
            refused = budget
        else:
            result, kept = found, found.best.memory.device_used_bytes * margin(asking)
    best = result.best
    assert best is not None
    final = asking.fastest(_reserve(result, kept * (1.0 + 1e-12)))
    answer = unreserved(asking, final if final is not None and final.best is not None else result)
    used = answer.best.memory.device_used_bytes if answer.best else None
    return with_proof(answer, _proof(asking, used, refused / margin(asking), points), asking, {})


def margin(asking: Asking) -> float:
    """Bytes that must be usable for each byte that is expected to be used, at the risk that is allowed."""
    risk = 0.5 if asking.search.allow_at_risk else asking.situation.job.options.max_oom_probability
    situation = asking.situation
    return usable_per_used(allocator_of(situation.engine, situation.cluster.device), risk)


def unreserved(asking: Asking, result: PlanResult, devices: int | None = None) -> PlanResult:
    """The same answer as predictions of the question without the reserve that found it."""
    situation = asking.at({} if devices is None else {"devices": devices})
    if result.best is None or situation is None:
        return result
    best = evaluate(situation, result.best.strategy)
    return replace(result, best=best, alternatives=())


def refuse_mixed(asking: Asking) -> None:
    """Budgets are for devices of one size."""
    if not asking.situation.cluster.is_homogeneous:
        raise InvalidCluster(
            f"{asking.situation.cluster.name} mixes devices, whose memory is no single number; plan for one group",
            pointer="/search/objective",
        )


def _reserve(result: PlanResult, budget: float) -> dict[str, int | float]:
    assert result.best is not None
    return {"reserve_bytes": result.best.memory.capacity_bytes - budget}


def _proof(asking: Asking, used: float | None, bound: float | None, points: list[Point]) -> Proof:
    return Proof(
        objective="memory",
        unit="bytes used on the fullest device",
        sense="least",
        value=used,
        bound=bound,
        points=tuple(points),
        assumption=f"a plan is kept where {margin(asking):.4f} of the bytes it uses are usable",
    )
