"""A plan as commands take it: a plan file, a planner.yaml, or a strategy; options of the command line win."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.strategy import StrategyRequest, strategy_from_mapping
from planner.cli.document import Document, read_document
from planner.cli.inputs import is_file, is_path, read_json, read_text
from planner.cli.question import Question, question_of_document, situation_of, strategy_of
from planner.request import SearchRequest

if TYPE_CHECKING:
    from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class AskedPlan:
    """A strategy in its situation, the search it came from, and the runners-up that the file holds."""

    situation: "Situation"
    strategy: StrategyRequest
    search: SearchRequest
    others: tuple[StrategyRequest, ...] = ()
    question: Question = field(default_factory=Question)


def asked_plan(source: str | None, stated: Question) -> AskedPlan:
    """The plan of a file, or of options alone; raises BadInput naming what is missing."""
    return plan_of_document(read_document(source) if source is not None else None, stated)


def plan_of_document(document: Document | None, stated: Question) -> AskedPlan:
    """The plan of a file that was read, or of options alone."""
    if document is None:
        return AskedPlan(situation_of(stated), strategy_of(stated), SearchRequest(), (), stated)
    question = stated.over(question_of_document(document))
    search, others = _from_plan_file(document) if stated.strategy is None else (None, ())
    return AskedPlan(
        situation_of(question), strategy_of(question), search or SearchRequest(), others, question
    )


def is_plan_source(text: str) -> bool:
    """Whether a text names a file that holds a question (a plan file, a planner.yaml), not only a strategy."""
    if "=" in text and not is_file(text):
        return False
    if not is_path(text):
        return False
    content = read_text(text, "plan")
    if not content.lstrip().startswith("{"):
        return ":" in content
    values = read_json(content, text, "plan")
    return "request" in values or "model" in values


def _from_plan_file(document: Document) -> tuple[SearchRequest | None, tuple[StrategyRequest, ...]]:
    """The search and the runners-up of a plan file; nothing for another file."""
    from planner.plan_file import parse_plan

    if not document.is_plan:
        return None, ()
    plan = parse_plan(document.values)
    return plan.request.search, tuple(_strategies(plan.result.get("alternatives")))


def _strategies(alternatives: object) -> list[StrategyRequest]:
    found: list[StrategyRequest] = []
    for other in alternatives if isinstance(alternatives, list) else ():
        stated: Any = other.get("strategy") if isinstance(other, Mapping) else None
        if isinstance(stated, Mapping):
            try:
                found.append(strategy_from_mapping(stated))
            except IllegalStrategy as error:
                raise BadInput(f"plan file: an alternative is no strategy ({error}); plan again") from None
    return found
