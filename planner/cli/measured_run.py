"""A measured run as `planner explain --measured` takes it: a report, a trace, a folder of traces."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.specs.strategy import strategy_from_mapping
from planner.cli.document import Document
from planner.cli.inputs import read_json, read_text
from planner.cli.plan_input import plan_of_document
from planner.cli.question import Question
from planner.request import PlanRequest

if TYPE_CHECKING:
    from planner.answers import Prediction
    from planner.explain.slower import Slower


def attribute(path: Path, document: Document | None, stated: Question, steps: int | None) -> "Slower":
    """The parts of the measured step beside the predicted ones; raises BadInput naming what is wrong.

    A report says itself what it ran; a trace needs the plan beside it.
    """
    from planner.explain.slower import from_report, from_traces
    from planner.explain.trace import is_trace, read_traces

    if not path.exists():
        raise BadInput(f"measured run {str(path)[:200]!r} does not exist; give a report, a trace or a folder")
    values: Any = None
    if path.is_file() and path.suffix != ".gz":
        values = _document(path)
    if values is None or is_trace(values):
        return from_traces(_prediction(document, stated), read_traces(path, steps))
    if not isinstance(values, Mapping) or "measured" not in values or "curve" not in values:
        raise BadInput(f"{path} is no report and no trace; write one with planner run --json, or --profile")
    prediction = _prediction(document, stated) if document is not None else _of_report(values, path)
    try:
        return from_report(prediction, values)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadInput(
            f"report {path} cannot be used ({error!r:.100}); write it with planner run --json"
        ) from None


def _document(path: Path) -> Any:
    """A JSON document: an object, or the bare list of a trace's events."""
    import json

    text = read_text(str(path), "measured run")
    if not text.lstrip().startswith("["):
        return read_json(text, str(path), "measured run")
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"measured run {path} is not valid JSON ({error}); write it again") from None


def _prediction(document: Document | None, stated: Question) -> "Prediction":
    from planner.evaluation import evaluate

    asked = plan_of_document(document, stated)
    return evaluate(asked.situation, asked.strategy)


def _of_report(report: Mapping[str, Any], path: Path) -> "Prediction":
    """The prediction of what a report says that it ran, as it is made now."""
    from planner.evaluation import evaluate
    from planner.situation import resolve

    try:
        request = PlanRequest.model_validate(report["request"])
        strategy = strategy_from_mapping(report["strategy"])
    except (KeyError, ValidationError):
        raise BadInput(
            f"report {path} does not name its plan; give the plan file beside --measured"
        ) from None
    return evaluate(resolve(request.model, request.cluster, request.job), strategy)
