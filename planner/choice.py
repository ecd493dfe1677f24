"""How sure it is that the best plan is the best, and the simpler plan that is as good within what is known.

A plan is simpler than another if it has fewer complications: an axis in use (tp, cp, pp, ep, etp, dp_replicate above
1), chunks (vpp above 1), recompute (one for one kind everywhere, two for several scopes or a count of layers), another
schedule than 1F1B or its interleaved form, offload, another order of axes or kind of context parallelism than the
default. It is inside the noise if the best plan beats it with a probability below `SURE`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.odds import probability_faster
from planner.situation import Situation

SURE: Final = 0.6
"""From this probability on that the best plan is the faster one, it is preferred whatever it takes."""
NEAR: Final = 1.05
"""Plans slower than this beside the best are not looked at: no probability below SURE is to be expected of them."""
LOOKED_AT: Final = 12
USUAL_SCHEDULES: Final = (ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED)


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan with the least step, the one that is returned, and the probabilities behind it."""

    optimum: Prediction
    chosen: Prediction
    second: Prediction | None = None
    second_slower: float | None = None
    simpler: Prediction | None = None
    simpler_slower: float | None = None

    @property
    def is_simpler(self) -> bool:
        """Whether the returned plan is not the one with the least step."""
        return self.chosen is not self.optimum

    def others(self, alternatives: tuple[Prediction, ...]) -> tuple[Prediction, ...]:
        """The runners-up of the returned plan: the optimum first where it is not returned itself."""
        if not self.is_simpler:
            return alternatives
        left = tuple(other for other in alternatives if other.strategy != self.chosen.strategy)
        return (self.optimum, *left)

    def to_json(self) -> dict[str, object]:
        """`confidence` of a plan: `first_faster` is P(the optimum beats the second), and so on."""
        return {
            "chosen": "simpler" if self.is_simpler else "optimum",
            "first_faster": self.second_slower,
            "second": self.second.strategy.to_json() if self.second else None,
            "optimum": _one(self.optimum, None),
            "simpler": _one(self.simpler, self.simpler_slower) if self.simpler else None,
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """What a user should know about the choice; empty where there is nothing beside the plan."""
        parts = []
        if self.second is not None and self.second_slower is not None:
            parts.append(f"faster than the second with probability {self.second_slower:.0%}")
        if self.simpler is not None and self.simpler_slower is not None:
            slower = self.simpler.step_s / self.optimum.step_s - 1.0
            if self.is_simpler:
                optimum = self.optimum.strategy.mesh_text()
                parts.append(
                    f"chosen for being simpler: {optimum} takes {slower:.1%} less and is faster with probability "
                    f"{self.simpler_slower:.0%} only"
                )
            else:
                parts.append(
                    f"a simpler plan is inside the noise: {self.simpler.strategy.mesh_text()} takes {slower:.1%} more "
                    f"(P {self.simpler_slower:.0%}); --prefer-simple takes it"
                )
        return "; ".join(parts)


def choose(
    situation: Situation,
    optimum: Prediction,
    others: tuple[Prediction, ...],
    met: Iterable[tuple[Strategy, float]],
    *,
    prefer_simple: bool,
) -> Choice:
    """Put the best plan beside its runners-up and beside the simpler ones of all that the search met (with their
    steps); return the simplest of those inside the noise where that is preferred."""
    second = others[0] if others else None
    second_slower = _sure(situation, optimum, second) if second else None
    simpler = _simpler(situation, optimum, others, met)
    slower = _sure(situation, optimum, simpler) if simpler else None
    chosen = simpler if simpler is not None and prefer_simple else optimum
    return Choice(optimum, chosen, second, second_slower, simpler, slower)


def complications(strategy: Strategy) -> int:
    """How many complications a strategy has (see above)."""
    degrees = (strategy.tp, strategy.cp, strategy.pp, strategy.ep, strategy.etp, strategy.dp_replicate)
    recompute = strategy.recompute
    counted = recompute.full not in (0, ALL_LAYERS)
    return (
        sum(degree > 1 for degree in degrees)
        + (strategy.vpp > 1)
        + (1 if recompute.scopes or recompute.full else 0)
        + (1 if len(recompute.scopes) > 1 or counted else 0)
        + (strategy.schedule not in USUAL_SCHEDULES)
        + (strategy.offload != "none")
        + (strategy.order != DEFAULT_ORDER)
        + (strategy.cp > 1 and strategy.cp_kind != "ring")
    )


def _simpler(
    situation: Situation,
    optimum: Prediction,
    others: tuple[Prediction, ...],
    met: Iterable[tuple[Strategy, float]],
) -> Prediction | None:
    """The simplest plan inside the noise, of equally simple ones the fastest; None where the best is the simplest."""
    most = complications(optimum.strategy)
    near = {strategy: step for strategy, step in met if step <= NEAR * optimum.step_s}
    near |= {other.strategy: other.step_s for other in others if other.step_s <= NEAR * optimum.step_s}
    fewer = [strategy for strategy in near if complications(strategy) < most]
    fewer.sort(key=lambda strategy: (complications(strategy), near[strategy]))
    for found in evaluate_many(situation, fewer[:LOOKED_AT]):
        as_safe = isinstance(found, Prediction) and found.verdict == optimum.verdict
        if isinstance(found, Prediction) and as_safe and _sure(situation, optimum, found) < SURE:
            return found
    return None


def _sure(situation: Situation, first: Prediction, second: Prediction) -> float:
    return probability_faster((first, situation), (second, situation))


def _one(prediction: Prediction, optimum_faster: float | None) -> dict[str, object]:
    found: dict[str, object] = {
        "step_s": prediction.step_s,
        "strategy": prediction.strategy.to_json(),
        "complications": complications(prediction.strategy),
    }
    return found if optimum_faster is None else found | {"optimum_faster": optimum_faster}
