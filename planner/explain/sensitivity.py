"""What better hardware would buy: one more node, 8 GB more memory, 10 % more FLOP/s or bandwidth of each link tier.

`re-priced`: the same strategy on the better hardware, a lower bound of the gain. `re-planned`: the best plan on it,
where the budget allows a search.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.errors import BadInput
from planner.answers import PlanResult, Prediction
from planner.evaluation import evaluate
from planner.explain.pinned import Budget, best_under
from planner.explain.scaled import Better, faster_resources, more_memory, one_more_node
from planner.request import SearchRequest
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One improvement: the step with the plan as it is (None where it cannot run there), and with the best plan.

    A re-planned step is held against `known_s`, the best step known on the hardware as it is, so that a better layout
    is not taken for better hardware; a re-priced one against the plan's own.
    """

    key: str
    name: str
    before_s: float
    known_s: float
    repriced_s: float | None
    replanned: Prediction | None
    why: str = ""

    @property
    def how(self) -> str:
        """`re-planned`, `re-priced` or `neither`, whichever shows the larger gain."""
        if self.repriced_s is None and self.replanned is None:
            return "neither"
        return max(self._gains(), key=lambda name: self._gains()[name])

    @property
    def gain(self) -> float | None:
        """Share of the step that is saved; negative where it takes longer."""
        return self._gains().get(self.how)

    @property
    def after_s(self) -> float | None:
        """The step behind the gain."""
        if self.how == "re-planned" and self.replanned is not None:
            return self.replanned.step_s
        return self.repriced_s

    def _gains(self) -> dict[str, float]:
        gains: dict[str, float] = {}
        if self.repriced_s is not None:
            gains["re-priced"] = 1.0 - self.repriced_s / self.before_s
        if self.replanned is not None:
            gains["re-planned"] = 1.0 - self.replanned.step_s / self.known_s
        return gains

    def to_json(self) -> dict[str, object]:
        """One entry of `sensitivity`."""
        return {
            "key": self.key,
            "change": self.name,
            "how": self.how,
            "step_s": self.after_s,
            "gain": self.gain,
            "best_known_step_s": self.known_s,
            "repriced_step_s": self.repriced_s,
            "replanned_step_s": self.replanned.step_s if self.replanned else None,
            "strategy": self.replanned.strategy.to_json() if self.replanned else None,
            "why": self.why,
        }


def sensitivities(
    situation: Situation, search: SearchRequest, plan: Prediction, known_s: float, budget: Budget
) -> tuple[Sensitivity, ...]:
    """Every improvement; `known_s` is the best step found without any, beside a search of its own here.

    Memory and a node change nothing for the same strategy: they have most of the time.
    """
    today = best_under(situation, search, budget.share_s(3)) if budget.allows_search() else None
    if today is not None and today.best is not None:
        known_s = min(known_s, today.best.step_s)
    changes = list(_changes(situation))
    found: list[Sensitivity] = []
    for index, change in enumerate(changes):
        parts = 2 if change.key in ("memory", "node") else len(changes) - index
        found.append(_of(search, plan, change, known_s, budget.share_s(parts)))
    return tuple(found)


def _changes(situation: Situation) -> Iterator[Better]:
    yield more_memory(situation)
    node = one_more_node(situation)
    if node is not None:
        yield node
    yield from faster_resources(situation)


def _of(
    search: SearchRequest, plan: Prediction, change: Better, known_s: float, max_seconds: float
) -> Sensitivity:
    try:
        repriced: float | None = evaluate(change.situation, plan.strategy).step_s
    except BadInput:
        repriced = None
    result = best_under(change.situation, search, max_seconds) if max_seconds > 0.0 else None
    best = result.best if result is not None else None
    why = _why_none(change, result) if best is None and repriced is None else ""
    return Sensitivity(change.key, change.name, plan.step_s, known_s, repriced, best, why)


def _why_none(change: Better, result: PlanResult | None) -> str:
    """Why there is no plan on the better hardware."""
    if result is None or result.status == "unknown":
        return "no plan found in the time given"
    legal = result.certificate.meshes_total - sum(result.certificate.meshes_illegal.values())
    if not legal:
        return f"no layout divides over {change.situation.cluster.num_devices:,} devices"
    return "no plan fits"
