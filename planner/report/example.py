"""The first answer that the page shows before anybody asks: made by `python -m planner.report.example FILE`."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from planner.answers import Progress, finite
from planner.make_plan import make_plan
from planner.plan_file import plan_document
from planner.request import PlanRequest
from planner.situation import resolve

QUESTION: Final[dict[str, Any]] = {
    "model": {"kind": "catalog", "name": "llama-3.1-70b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 64},
    "job": {
        "seq_len": 8192,
        "global_batch": 512,
        "precision": "bf16",
        "engine": "megatron",
        "optimizer": "adamw",
    },
    "search": {"top_k": 5, "max_seconds": 60},
}
PLAN_ID: Final = "plan_" + "0" * 32
"""The id of an answer that no server holds."""


def example() -> dict[str, Any]:
    """The question, its plan document without the spelt-out model, and how the search went."""
    request = PlanRequest.model_validate(QUESTION)
    situation = resolve(request.model, request.cluster, request.job, reader="plain")
    started, events = time.monotonic(), list[dict[str, Any]]()

    def note(progress: Progress) -> None:
        events.append(event_of(progress, time.monotonic() - started))

    result = make_plan(situation, request.search, note)
    document = plan_document(situation, request.search, result)
    kept = {key: document[key] for key in ("schema_version", "result", "made_with")}
    plan: dict[str, Any] = kept | {"id": PLAN_ID, "request": QUESTION}
    found = finite({"plan": plan, "request": QUESTION, "events": thinned(events)})
    return found if isinstance(found, dict) else {}


def event_of(progress: Progress, at_s: float) -> dict[str, Any]:
    """One line of the search's history."""
    return {
        "at_s": round(at_s, 3),
        "lower_bound_s": progress.lower_bound_s,
        "best_step_s": progress.best_step_s,
        "gap": progress.gap,
        "meshes_done": progress.meshes_done,
        "meshes_total": progress.meshes_total,
    }


def thinned(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those events in which the best step or the bound moved, and the last."""
    kept: list[dict[str, Any]] = []
    for event in events:
        keys = ("lower_bound_s", "best_step_s")
        if not kept or any(event[key] != kept[-1][key] for key in keys) or event is events[-1]:
            kept.append(event)
    return kept


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(example(), allow_nan=False, separators=(",", ":")) + "\n")
