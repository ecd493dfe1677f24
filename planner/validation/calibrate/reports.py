"""Reports of the project's own runs (`planner run --json`) as measured runs: the question, the layout, the step."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cost_models.errors import BadInput
from cost_models.specs.strategy import strategy_from_mapping
from cost_models.units import GIB
from planner.request import PlanRequest
from planner.situation import resolve
from planner.validation.mapping import Case
from planner.validation.predict import Outcome, predict_case
from planner.validation.rows import Run

MAX_FILE_BYTES: Final = 256 * 1024**2
OWN: Final = "the project's own executor"


def is_report(path: Path) -> bool:
    """Whether a file is meant to be a report, not a table."""
    return path.suffix.lower() in (".json", ".jsonl")


def outcomes_of_reports(path: Path) -> list[Outcome]:
    """Every report of a file, one object or one a line; raises BadInput naming what is wrong."""
    found = []
    for number, text in enumerate(_texts(path), start=1):
        where = f"{path} line {number}" if path.suffix.lower() == ".jsonl" else str(path)
        try:
            values = json.loads(text)
            found.append(outcome_of_report(values, f"{path.stem}-{number}"))
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            what = " ".join(str(error).split())[:200]
            raise BadInput(
                f"{where} is no report of a run ({what}); write it with planner run --json"
            ) from None
    return found


def outcome_of_report(report: Mapping[str, Any], name: str) -> Outcome:
    """One report as a run with its prediction under the profiles as they are now."""
    if "request" not in report:
        raise ValueError("it names no request, as reports of earlier versions")
    request = PlanRequest.model_validate(report["request"])
    situation = resolve(request.model, request.cluster, request.job)
    measured = report["measured"]
    cells = {
        "id": f"run-{name}",
        "core": "yes",
        "step_time_s": repr(float(measured["step_s"])),
        "peak_memory_gib": repr(float(measured["peak_bytes"]) / GIB),
        "memory_kind": "max allocated, GiB",
        "pp": str(report["strategy"].get("pp", 1)),
        "n_gpus": str(report["world_size"]),
        "framework": str(report["engine"]),
    }
    run = Run(cells, Path())
    case = Case(run, situation, strategy_from_mapping(report["strategy"]), (), OWN)
    return Outcome(run, case, predict_case(case), None)


def _texts(path: Path) -> list[str]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadInput(
                f"report {path} exceeds {MAX_FILE_BYTES:,} bytes; give the JSON of planner run alone"
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"report {path} cannot be read ({error}); give the JSON of planner run") from None
    return [line for line in text.splitlines() if line.strip()] if path.suffix.lower() == ".jsonl" else [text]
