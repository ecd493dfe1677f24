"""Plan files of every point of a front."""

from dataclasses import replace
from pathlib import Path

from planner.answers import PlanResult
from planner.objectives.front import Front, FrontPoint
from planner.plan_file import plan_document, write_plan
from planner.request import SearchRequest
from planner.situation import Situation


def with_files(result: PlanResult, folder: Path, situation: Situation, search: SearchRequest) -> PlanResult:
    """Write `devices-gibibytes.json` for every point of the front and say so in the point."""
    if not isinstance(result.front, Front):
        return result
    asked = search.model_copy(update={"objective": "step_time", "pareto": False})
    written: list[FrontPoint] = []
    for point in result.front.points:
        used = point.prediction.memory.device_used_bytes / 1024**3
        path = folder / f"plan-{point.devices}-{used:.1f}GiB.json"
        answer = replace(point.result, changes={**point.result.changes, "devices": point.devices})
        write_plan(path, plan_document(situation, asked, answer))
        written.append(replace(point, plan=str(path)))
    return replace(result, front=replace(result.front, points=tuple(written)))
