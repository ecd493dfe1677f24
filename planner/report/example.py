"""The first answer that the page shows before anybody asks: made by `python -m planner.report.example FILE`."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from planner.answers import Progress, finite
from planner.make_plan import make_plan
from planner.plan_file import plan_document
from planner.report.history import event_of, thinned
from planner.report.views import view_of
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
FIRST_OPERATIONS: Final = 4_000
"""Those that the first look at the timeline shows; the page asks for the rest."""


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
    if result.best is None:
        return {}
    view = view_of(situation, result.best.strategy, FIRST_OPERATIONS)
    found = finite({"plan": plan, "request": QUESTION, "events": thinned(events), "views": {"0": view}})
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(example(), allow_nan=False, separators=(",", ":")) + "\n")
