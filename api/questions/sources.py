"""Where a question takes its plan from: a plan of this server, a plan document, or everything spelt out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import model_validator

from api.schemas import PlanId, StrategyInput
from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.base import Frozen
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest, parse_strategy, strategy_from_mapping
from planner.plan_file import PlanFile, parse_plan
from planner.request import ClusterInput, ModelInput, SearchRequest
from planner.situation import Situation, resolve

SPELT_OUT = ("model", "cluster", "job", "strategy")
MAX_ALTERNATIVES = 100


class PlanSource(Frozen):
    """`plan_id`, or `plan` (the document of a plan file), or `model`, `cluster`, `job` and `strategy`."""

    plan_id: PlanId | None = None
    plan: dict[str, object] | None = None
    model: ModelInput | None = None
    cluster: ClusterInput | None = None
    job: JobRequest | None = None
    strategy: StrategyInput | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "PlanSource":
        stated = [key for key in SPELT_OUT if getattr(self, key) is not None]
        sources = [key for key in ("plan_id", "plan") if getattr(self, key) is not None]
        if len(sources) > 1 or (sources and stated):
            raise ValueError(
                f"{', '.join((*sources, *stated))} are given; give one of plan_id and plan alone"
            )
        if not sources and len(stated) < len(SPELT_OUT):
            raise ValueError("give plan_id, or plan, or model, cluster, job and strategy")
        return self


@dataclass(frozen=True, slots=True)
class Asked:
    """A strategy in its situation, the search that it came from, its runners-up and its plan's id."""

    situation: Situation
    strategy: StrategyRequest
    search: SearchRequest = field(default_factory=SearchRequest)
    others: tuple[StrategyRequest, ...] = ()
    plan_id: str = ""


def asked(source: PlanSource, stored: Mapping[str, Any] | None) -> Asked:
    """What a source names; `stored` is the plan of its `plan_id`. Raises BadInput, IllegalStrategy among them."""
    document = stored if stored is not None else source.plan
    if document is not None:
        return asked_of_plan(parse_plan(document))
    if source.model is None or source.cluster is None or source.job is None or source.strategy is None:
        raise BadInput("the plan is not at hand; give it as plan", pointer="/plan_id")
    situation = resolve(source.model, source.cluster, source.job, reader="plain")
    return Asked(situation, strategy_of(source.strategy))


def asked_of_plan(plan: PlanFile) -> Asked:
    """The best plan of a document; raises BadInput where it holds none."""
    strategy = strategy_from_mapping(plan.best_strategy())
    request = plan.request
    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    return Asked(situation, strategy, request.search, _others(plan), plan.id)


def unsolved(source: PlanSource, stored: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The result of a plan document that found no plan; None for anything else."""
    document = stored if stored is not None else source.plan
    if document is None:
        return None
    result = parse_plan(document).result
    return result if result.get("best") is None else None


def strategy_of(stated: StrategyInput) -> StrategyRequest:
    """A strategy from text or an object; raises IllegalStrategy."""
    return parse_strategy(stated) if isinstance(stated, str) else strategy_from_mapping(stated)


def _others(plan: PlanFile) -> tuple[StrategyRequest, ...]:
    """The runners-up of a plan document."""
    listed = plan.result.get("alternatives")
    found: list[StrategyRequest] = []
    for other in listed[:MAX_ALTERNATIVES] if isinstance(listed, list) else ():
        stated = other.get("strategy") if isinstance(other, Mapping) else None
        if isinstance(stated, Mapping):
            try:
                found.append(strategy_from_mapping(stated))
            except IllegalStrategy as error:
                raise BadInput(
                    f"an alternative is no strategy ({error}); plan again", pointer="/plan"
                ) from None
    return tuple(found)
