"""Plans kept in memory: the most recently used ones, within a number and a size."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.answers import finite


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """One plan: the envelope, its exact bytes, and the entity tag of those bytes."""

    envelope: Mapping[str, Any]
    body: bytes
    etag: str

    @classmethod
    def of(cls, envelope: Mapping[str, Any]) -> "StoredPlan":
        """Write the envelope once; every answer sends the same bytes."""
        body = json.dumps(finite(dict(envelope)), allow_nan=False).encode("ascii")
        return cls(envelope, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


class PlanStore:
    """Least recently used plans are forgotten first; used from the event loop only, so no lock is needed."""

    def __init__(self, max_plans: int, max_bytes: int) -> None:
        self._max_plans = max_plans
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._plans: OrderedDict[str, StoredPlan] = OrderedDict()

    def put(self, plan: StoredPlan) -> None:
        """Keep a plan, forgetting others where there is no room."""
        self._plans[str(plan.envelope["id"])] = plan
        self._num_bytes += len(plan.body)
        while len(self._plans) > 1 and (
            len(self._plans) > self._max_plans or self._num_bytes > self._max_bytes
        ):
            _, forgotten = self._plans.popitem(last=False)
            self._num_bytes -= len(forgotten.body)

    def get(self, plan_id: str) -> StoredPlan | None:
        """A plan by its id, or None."""
        plan = self._plans.get(plan_id)
        if plan is not None:
            self._plans.move_to_end(plan_id)
        return plan
