"""Two plans side by side: what differs in knobs and question, where the time and the memory go, which is faster."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.specs.strategy import Strategy, StrategyRequest
from planner.answers import Prediction
from planner.attribution import origin_of
from planner.evaluation import evaluate
from planner.explain.differences import Difference, difference
from planner.explain.facts import LayoutFacts, layout_facts
from planner.odds import probability_faster
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its situation, prediction and first facts."""

    situation: Situation
    prediction: Prediction
    facts: LayoutFacts


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences are second minus first; `question` names what else than the strategy differs."""

    first: Side
    second: Side
    question: Mapping[str, tuple[object, object]]
    difference: Difference
    first_faster: float

    def to_json(self) -> dict[str, object]:
        """`planner compare --json`."""
        return {
            "first": self.first.prediction.to_json() | {"facts": self.first.facts.to_json()},
            "second": self.second.prediction.to_json() | {"facts": self.second.facts.to_json()},
            "question": {key: list(pair) for key, pair in self.question.items()},
            "difference": self.difference.to_json(),
            "probability_first_faster": self.first_faster,
            "sentence": self.sentence(),
        }

    def sentence(self) -> str:
        """Which is faster, by how much, how sure that is, and where."""
        moved = self.difference
        if moved.step_s == 0.0:
            return "both take the same time"
        name = "the first" if moved.step_s > 0 else "the second"
        sure = self.first_faster if moved.step_s > 0 else 1.0 - self.first_faster
        where = f" ({moved.where()} in the second)" if moved.where() else ""
        slower = max(moved.first_s, moved.second_s) / min(moved.first_s, moved.second_s) - 1.0
        return f"{name} is faster by {slower:.1%}, with probability {sure:.0%}{where}"


def side(situation: Situation, strategy: StrategyRequest | Strategy) -> Side:
    """Price one strategy for a comparison; raises IllegalStrategy."""
    prediction = evaluate(situation, strategy)
    return Side(situation, prediction, layout_facts(situation, prediction.strategy))


def compare(first: Side, second: Side) -> Comparison:
    """Put two priced strategies side by side; they may answer different questions."""
    ours, theirs = (origin_of(each.situation, each.prediction).configuration for each in (first, second))
    keys = [key for key in dict.fromkeys((*ours, *theirs)) if not key.startswith("strategy.")]
    differs = {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}
    faster = probability_faster((first.prediction, first.situation), (second.prediction, second.situation))
    return Comparison(first, second, differs, difference(first.prediction, second.prediction), faster)
