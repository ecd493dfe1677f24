"""Why not this strategy? Illegal by which rule, short by how many GiB where, or slower by how much and where.

A partial strategy is completed by a search in which the keys it names are pinned; a complete one is priced as it is.
Keys that no search takes (stages, offload, counts of recomputed layers, ...) are put on what the search finds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost_models.engines import complete
from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.pools import groups_text
from cost_models.specs.recompute import ALL_LAYERS, parse_recompute
from cost_models.specs.strategy import Strategy, StrategyRequest
from planner.answers import Certificate, PlanResult, Prediction
from planner.evaluation import Context, evaluate, evaluate_many
from planner.explain.contrast import Contrast
from planner.explain.differences import difference
from planner.explain.memory import shortage
from planner.explain.pinned import best_under, with_pins
from planner.explain.restated import restated
from planner.explain.rules import broken_by_all
from planner.odds import probability_faster
from planner.relax import leanest
from planner.request import SearchRequest
from planner.restrictions import SEARCHED
from planner.situation import Situation


def against(
    situation: Situation,
    search: SearchRequest,
    plan: Prediction,
    request: StrategyRequest,
    max_seconds: float,
) -> Contrast:
    """Hold a plan against a strategy, completed by a search where it leaves knobs open."""
    context = Context.of(situation)
    stated = {
        key: value for key in StrategyRequest.model_fields if (value := getattr(request, key)) is not None
    }
    question = _Question(context, plan, _asked(stated))
    try:
        as_given = complete(situation.engine, context.facts, request)
    except IllegalStrategy as refusal:
        return Contrast(question.asked, "illegal", False, plan, violations=refusal.violations)
    if _is_complete(situation, stated) or _has(plan.strategy, as_given, stated):
        whole = _is_complete(situation, stated)
        return question.priced(as_given) if whole else question.contrast(plan, None)
    pins, rest = _split(stated, as_given)
    try:
        pinned = with_pins(search, pins)
    except BadInput as error:
        return Contrast(question.asked, "illegal", True, plan, why=error.detail)
    result = best_under(situation, pinned, max_seconds)
    if result is None or result.best is None:
        return _without_plan(question, pinned, as_given, result)
    best = _with_rest(situation, [result.best.strategy, as_given], rest) if rest else result.best
    if isinstance(best, IllegalStrategy):
        return Contrast(question.asked, "illegal", True, plan, violations=best.violations)
    return question.contrast(best, None if rest else result.certificate)


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked about which plan."""

    context: Context
    plan: Prediction
    asked: str

    def priced(self, strategy: Strategy) -> Contrast:
        """A strategy as it was given."""
        try:
            found = evaluate(self.context.situation, strategy)
        except IllegalStrategy as refusal:
            return Contrast(self.asked, "illegal", False, self.plan, violations=refusal.violations)
        return replace(self.contrast(found, None), completed=False)

    def contrast(self, other: Prediction, certificate: Certificate | None) -> Contrast:
        """A legal strategy beside the plan."""
        plan, situation = self.plan, self.context.situation
        verdict = "does_not_fit" if not other.fits else "slower" if other.step_s > plan.step_s else "faster"
        if other.strategy == plan.strategy or (other.fits and other.step_s == plan.step_s):
            verdict = "same"
        sure = probability_faster((plan, situation), (other, situation)) if other.fits else None
        found = Contrast(
            self.asked, verdict, True, plan, other, difference(plan, other), (), certificate, sure
        )
        return replace(found, short=shortage(other, situation))


def _without_plan(
    question: _Question, pinned: SearchRequest, as_given: Strategy, result: PlanResult | None
) -> Contrast:
    """Why the pins leave no plan: stopped early, a rule, or memory."""
    situation = question.context.situation
    if result is None:
        return question.priced(as_given)
    if result.status == "unknown":
        return Contrast(
            question.asked, "unknown", True, question.plan, certificate=result.certificate, why=result.reason
        )
    broken = broken_by_all(question.context, pinned, as_given)
    if broken:
        return Contrast(
            question.asked, "illegal", True, question.plan, violations=broken, certificate=result.certificate
        )
    closest = leanest(situation, pinned)
    if closest is None:
        return question.priced(as_given)
    return replace(question.contrast(closest, result.certificate), verdict="does_not_fit")


def _is_complete(situation: Situation, stated: Mapping[str, object]) -> bool:
    """Whether a strategy leaves no searched knob open, as `Strategy.text` writes it: dp follows, experts and groups
    only where there are any, no word of activations where none rest on the host."""
    optional = {"dp", "dp_replicate", "act_offload"} | (set() if situation.model.is_moe else {"ep", "etp"})
    optional |= {"groups"} if len(situation.cluster.groups) == 1 else set()
    return all(key in stated or key in optional for key in SEARCHED)


def _has(plan: Strategy, as_given: Strategy, stated: Mapping[str, object]) -> bool:
    """Whether a plan has every value that is stated."""
    names = {"groups": "stage_groups"}
    return all(getattr(plan, names.get(key, key)) == getattr(as_given, names.get(key, key)) for key in stated)


def _split(stated: Mapping[str, object], as_given: Strategy) -> tuple[dict[str, object], dict[str, object]]:
    """What a search can be given as pins, and the rest."""
    pins: dict[str, object] = {}
    rest: dict[str, object] = {}
    for key, value in stated.items():
        counted = key == "recompute" and parse_recompute(str(value)).full not in (0, ALL_LAYERS)
        (pins if key in SEARCHED and not counted else rest)[key] = _plain(key, value)
    return pins | _pins_of_stages(stated) | _pins_of_groups(stated, as_given), rest


def _pins_of_stages(stated: Mapping[str, object]) -> dict[str, object]:
    """The number of virtual stages that a list of stages fixes; without pp each is a pipeline rank."""
    stages, pp, vpp = stated.get("stages"), stated.get("pp"), stated.get("vpp")
    if not isinstance(stages, tuple) or isinstance(vpp, int):
        return {}
    if not isinstance(pp, int):
        return {"pp": len(stages), "vpp": 1}
    return {"vpp": len(stages) // pp} if len(stages) % pp == 0 else {}


def _pins_of_groups(stated: Mapping[str, object], as_given: Strategy) -> dict[str, object]:
    """The placement that device groups come to, by their whole names, and the number of ranks where each has some."""
    groups = stated.get("groups")
    if not isinstance(groups, tuple):
        return {}
    placement = tuple(dict.fromkeys(as_given.stage_groups))
    return {"groups": "+".join(placement)} | ({"pp": len(groups)} if len(groups) > len(placement) else {})


def _with_rest(
    situation: Situation, candidates: list[Strategy], rest: Mapping[str, object]
) -> Prediction | IllegalStrategy:
    """The fastest candidate that fits after the keys that no search takes are put on it, or why none is legal."""
    tried = evaluate_many(situation, [restated(strategy, rest) for strategy in candidates])
    legal = [found for found in tried if isinstance(found, Prediction)]
    if not legal:
        return next(found for found in tried if isinstance(found, IllegalStrategy))
    return min(legal, key=lambda p: (not p.fits, p.step_s))


def _asked(stated: Mapping[str, object]) -> str:
    return ",".join(f"{key}={_text(key, value)}" for key, value in stated.items())


def _plain(key: str, value: object) -> object:
    """A value as pins and strategies write it; stages stay numbers."""
    if key == "groups" and isinstance(value, tuple):
        return groups_text(value)
    if isinstance(value, tuple):
        return "-".join(map(str, value)) if key == "order" else value
    return getattr(value, "value", value)


def _text(key: str, value: object) -> str:
    plain = _plain(key, value)
    if isinstance(plain, tuple):
        return "+".join(map(str, plain))
    return str(plain).lower() if isinstance(plain, bool) else str(plain)
