"""The plan file: one document with the question (model and cluster resolved), the answer, and what made it.

`planner plan -o` writes it and the service answers the same keys, so that check, explain, export and run need
nothing else. Non-finite numbers are null.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from cost_models.errors import BadInput
from planner.answers import PlanResult, finite
from planner.attribution import stamp
from planner.request import LayersModel, PlanRequest, SearchRequest, SpecCluster
from planner.situation import Situation, changed

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan that was read: the request, the result as JSON, and what made it."""

    id: str
    request: PlanRequest
    result: Mapping[str, Any]
    made_with: Mapping[str, Any]

    def best_strategy(self) -> Mapping[str, Any]:
        """The strategy of the best plan; raises BadInput where the request was infeasible."""
        best = self.result.get("best")
        if not isinstance(best, Mapping) or not isinstance(best.get("strategy"), Mapping):
            status = str(self.result.get("status"))[:40]
            raise BadInput(
                f"plan {self.id[:80]} holds no strategy (status {status}); plan again with more room"
            )
        strategy: Mapping[str, Any] = best["strategy"]
        return strategy


def resolved_request(situation: Situation, search: SearchRequest) -> PlanRequest:
    """The request with model and cluster spelt out, so that no catalog is needed to read it again."""
    return PlanRequest(
        model=LayersModel(spec=situation.model.model_dump(mode="json")),
        cluster=SpecCluster(spec=situation.cluster.model_dump(mode="json")),
        job=situation.job_request,
        search=search,
    )


def made_with(situation: Situation, seed: int) -> dict[str, object]:
    """What an answer depends on beside the request."""
    return stamp(situation) | {"seed": seed, "created_at": now_text()}


def plan_document(situation: Situation, search: SearchRequest, result: PlanResult) -> dict[str, object]:
    """The plan document, ready for JSON; its request is the one that the best plan answers."""
    if result.changes:
        situation = changed(situation, result.changes)
    document = {
        "schema_version": SCHEMA_VERSION,
        "id": new_plan_id(),
        "request": resolved_request(situation, search).model_dump(mode="json"),
        "result": result.to_json(),
        "made_with": made_with(situation, search.seed),
    }
    cleaned = finite(document)
    return cleaned if isinstance(cleaned, dict) else document


def write_plan(path: Path, document: Mapping[str, object]) -> None:
    """Write a plan document whole or not at all; raises BadInput where the place cannot be written.

    A file is replaced, through links; anything else that stands there (a device, a pipe) is written into.
    """
    write_whole(path, json.dumps(document, indent=1, allow_nan=False) + "\n", "plan file", "-o")


def write_json(path: Path, document: Mapping[str, object], what: str, option: str) -> None:
    """Write a JSON document whole or not at all; numbers that are not finite become null."""
    write_whole(path, json.dumps(finite(dict(document)), indent=1, allow_nan=False) + "\n", what, option)


def write_whole(path: Path, text: str, what: str, option: str) -> None:
    """Write text whole or not at all, as `write_plan` does; `what` and `option` name it in the refusal."""
    draft: Path | None = None
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        draft = target.parent / f".plan-{uuid.uuid4().hex}"
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except OSError as error:
        if draft is not None:
            draft.unlink(missing_ok=True)
        raise BadInput(
            f"{what} {str(path)[:200]} cannot be written ({error.strerror}); choose another {option}"
        ) from None


def parse_plan(document: Mapping[str, Any]) -> PlanFile:
    """A plan from its document; raises BadInput for another schema or a request that does not hold."""
    version = document.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise BadInput(
            f"plan file of schema {version!r:.40}; this planner reads schema {SCHEMA_VERSION}, plan again",
            pointer="/schema_version",
        )
    result, made = document.get("result"), document.get("made_with", {})
    if not isinstance(result, Mapping) or not isinstance(made, Mapping):
        raise BadInput("plan file without a result object; plan again with -o", pointer="/result")
    try:
        request = PlanRequest.model_validate(document.get("request"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        raise BadInput(
            f"plan file: request.{where}: {first['msg']}; plan again", pointer="/request"
        ) from None
    return PlanFile(str(document.get("id", ""))[:80], request, result, made)


def new_plan_id() -> str:
    """A fresh identifier, safe in paths and URLs."""
    return f"plan_{uuid.uuid4().hex}"


def now_text() -> str:
    """The present in UTC, to the millisecond, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
