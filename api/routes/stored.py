"""Plans of this server as other resources use them: by id, final ones only."""

from collections.abc import Mapping
from typing import Any

from api.deps import StoreDep
from api.errors import Fault, Problem
from api.routes.plans import stored_plan

SUCCEEDED = "succeeded"


async def stored_document(store: StoreDep, plan_id: str | None) -> Mapping[str, Any] | None:
    """The Plan body of an id, None without one; raises Problem 404, or 409 where the plan has no result."""
    if plan_id is None:
        return None
    found = await stored_plan(store, plan_id)
    if found["state"] != SUCCEEDED:
        detail = f"the plan is {found['state']}; wait until it has succeeded"
        raise Problem(409, "illegal_transition", detail, [Fault("/plan_id", "illegal_transition", detail)])
    return found
