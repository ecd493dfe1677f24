"""Exports: a plan as the settings of a training framework."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictStr

from api.questions.sources import PlanSource, asked
from cost_models.errors import BadInput
from planner.situation import Situation, situate


class ExportRequest(PlanSource):
    """A plan and whose settings to write; `version` is the framework's, where its settings differ by version."""

    format: Annotated[StrictStr, Field(min_length=1, max_length=64)]
    version: Annotated[StrictStr, Field(min_length=1, max_length=32)] | None = None


def export(request: ExportRequest, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object of `planner export --json` with its files as a list of relative paths; raises BadInput."""
    from planner.evaluation import evaluate
    from planner.formats.export import PlannedRun
    from planner.formats.registry import write_settings

    found = asked(request, stored)
    situation = _of_version(found.situation, request.version)
    prediction = evaluate(situation, found.strategy)
    made = write_settings(PlannedRun(situation, prediction.strategy, found.plan_id), request.format)
    if request.version is not None and made.version != request.version:
        raise BadInput(
            f"{request.format} settings are written for version {made.version}; leave version out or give that",
            pointer="/version",
            allowed=(made.version,),
        )
    files = [{"path": path, "content": content} for path, content in made.files.items()]
    return made.to_json() | {"files": files}


def _of_version(situation: Situation, version: str | None) -> Situation:
    """The same question under another version of its engine, where that has it."""
    if version is None or version not in situation.engine.versions:
        return situation
    job = situation.job_request.model_copy(update={"engine": f"{situation.engine.name}@{version}"})
    return situate(situation.model, situation.cluster, job)
