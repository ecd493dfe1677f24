"""What better hardware would buy: one more node, 8 GB more memory, 10 % more FLOP/s or bandwidth of each link tier.

`re-priced`: the same strategy on the better hardware, a lower bound of the gain. `re-planned`: the best plan on it,
where the budget allows a search.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.errors import BadInput
from cost_models.units import format_seconds
from planner.evaluate import evaluate
from planner.explain.pinned import Budget, best_under
from planner.explain.scaled import Better, faster_resources, more_memory, one_more_node
from planner.plan import PlanResult, Prediction
from planner.request import SearchRequest
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One improvement: the step with the plan as it is (None where it cannot run there), and with the best plan."""

    key: str
    name: str
    before_s: float
    devices: tuple[int, int]
    repriced_s: float | None
    replanned: Prediction | None
    why: str = ""

    @property
    def after_s(self) -> float | None:
        """The best step known on the better hardware."""
        known = [self.repriced_s, self.replanned.step_s if self.replanned else None]
        return min((step for step in known if step is not None), default=None)

    @property
    def how(self) -> str:
        """`re-priced`, `re-planned` or `neither`."""
        if self.replanned is not None and self.replanned.step_s == self.after_s:
            return "re-planned"
        return "neither" if self.repriced_s is None else "re-priced"

    def to_json(self) -> dict[str, object]:
        """One entry of `sensitivity`."""
        after = self.after_s
        return {
            "key": self.key,
            "change": self.name,
            "how": self.how,
            "step_s": after,
            "gain": None if after is None else 1.0 - after / self.before_s,
            "repriced_step_s": self.repriced_s,
            "replanned_step_s": self.replanned.step_s if self.replanned else None,
            "strategy": self.replanned.strategy.to_json() if self.replanned else None,
            "why": self.why,
        }

    def sentence(self) -> str:
        """`one more node (72 devices): 54.1 s, 9.9 % less (re-planned)`."""
        if self.after_s is None:
            return f"{self.name}: {self.why}"
        gain = 1.0 - self.after_s / self.before_s
        word = "less" if gain >= 0 else "more"
        why = f"; {self.why}" if self.why else ""
        return f"{self.name}: {format_seconds(self.after_s)}, {abs(gain):.1%} {word} ({self.how}){why}"


def sensitivities(
    situation: Situation, search: SearchRequest, plan: Prediction, budget: Budget
) -> tuple[Sensitivity, ...]:
    """Every improvement. Memory and a node change nothing for the same strategy: they have most of the time."""
    changes = list(_changes(situation))
    found: list[Sensitivity] = []
    for index, change in enumerate(changes):
        parts = 2 if change.key in ("memory", "node") else len(changes) - index
        found.append(_of(situation, search, plan, change, budget.share_s(parts)))
    return tuple(found)


def _changes(situation: Situation) -> Iterator[Better]:
    yield more_memory(situation)
    node = one_more_node(situation)
    if node is not None:
        yield node
    yield from faster_resources(situation)


def _of(
    situation: Situation, search: SearchRequest, plan: Prediction, change: Better, max_seconds: float
) -> Sensitivity:
    devices = (situation.cluster.num_devices, change.situation.cluster.num_devices)
    try:
        repriced: float | None = evaluate(change.situation, plan.strategy).step_s
    except BadInput:
        repriced = None
    result = best_under(change.situation, search, max_seconds) if max_seconds > 0.0 else None
    best = result.best if result is not None else None
    why = ""
    if best is None and repriced is None:
        why = (
            "no plan found in the time given"
            if result is None
            else (result.reason or "no plan is legal and fits")
        )
    return Sensitivity(change.key, change.name, plan.step_s, devices, repriced, best, why)


def _why_none(change: Better, result: PlanResult | None) -> str:
    """Why there is no plan on the better hardware."""
    if result is None or result.status == "unknown":
        return "no plan found in the time given"
    legal = result.certificate.meshes_total - sum(result.certificate.meshes_illegal.values())
    if not legal:
        return f"no layout divides over {change.situation.cluster.num_devices:,} devices"
    return "no plan fits"
