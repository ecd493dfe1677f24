"""Plans of this server as other resources use them: by id, visible and final ones only."""

from collections.abc import Mapping
from typing import Any

from api.errors import Fault, Problem
from api.keys import Caller
from api.routes.plans import found_plan
from api.store.plans import Plans, document_of

SUCCEEDED = "succeeded"


async def stored_document(plans: Plans, caller: Caller, plan_id: str | None) -> Mapping[str, Any] | None:
    """The Plan body of an id, None without one; raises Problem 404, or 409 where the plan has no result."""
    if plan_id is None:
        return None
    row = await found_plan(plans, plan_id, caller)
    if row.state != SUCCEEDED:
        detail = f"the plan is {row.state}; wait until it has succeeded"
        raise Problem(409, "illegal_transition", detail, [Fault("/plan_id", "illegal_transition", detail)])
    return document_of(row)
