"""One item of a sweep, solved here: never an exception for what the item asks, always a row."""

import json
import time
from collections.abc import Mapping
from typing import Any

from cost_models.errors import BadInput, IllegalStrategy
from planner.answers import PlanResult, Prediction, finite
from planner.request import PlanRequest
from planner.sweep.items import SweepItem

Row = dict[str, Any]

REFUSED, FAILED = "refused", "failed"

COLUMNS = (
    "step_s",
    "step_s_low",
    "step_s_high",
    "tokens_per_s_per_device",
    "samples_per_s_per_device",
    "mfu",
    "verdict",
    "oom_probability",
)


def solve_item(item: SweepItem) -> Row:
    """The row of one item: status, rule where there is no plan, the main numbers, and the plan document."""
    return {"key": item.key, **item.labels} | solve_request(item.request)


def solve_request(request: PlanRequest) -> Row:
    """A row without labels: `status` is the plan's, `refused` for bad input, `failed` for a bug of ours."""
    started = time.monotonic()
    try:
        row = _answer(request)
    except BadInput as error:
        rule = error.violations[0].rule if isinstance(error, IllegalStrategy) else error.code
        row = {"status": REFUSED, "rule": rule, "detail": error.detail}
    except Exception as error:
        detail = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}; this is a bug of the planner"
        row = {"status": FAILED, "rule": "internal_error", "detail": detail}
    cleaned = finite(row | {"wall_s": time.monotonic() - started})
    assert isinstance(cleaned, dict)
    return cleaned


def solve_text(text: str) -> Row:
    """The same from a request as JSON; what crosses to another process is text."""
    return solve_request(PlanRequest.model_validate_json(text))


def request_text(request: PlanRequest) -> str:
    """A request as JSON."""
    return json.dumps(request.model_dump(mode="json"))


def died(detail: str) -> Row:
    """The row of an item whose process ended without an answer."""
    return {"status": FAILED, "rule": "worker_died", "detail": detail, "wall_s": None}


def _answer(request: PlanRequest) -> Row:
    from planner.make_plan import make_plan
    from planner.plan_file import plan_document
    from planner.search_request import check_search
    from planner.situation import resolve

    check_search(request.search)
    situation = resolve(request.model, request.cluster, request.job)
    result = make_plan(situation, request.search)
    document = plan_document(situation, request.search, result)
    row = {
        "status": result.status,
        "rule": None,
        "detail": result.reason,
        "devices": situation.cluster.num_devices,
    }
    if result.best is None:
        row |= {"rule": _rule(result), "detail": result.reason or _counts(result)}
    else:
        row |= _numbers(result, result.best)
    return row | {"document": document}


def _numbers(result: PlanResult, best: Prediction) -> Row:
    """The main numbers of a plan, flat; changes of another objective over what was asked."""
    run: Mapping[str, Any] = result.run or {}
    return {
        **{name: getattr(best, name) for name in COLUMNS},
        "device_used_bytes": best.memory.device_used_bytes,
        "strategy": best.strategy.text(),
        "lower_bound_s": result.certificate.lower_bound_s,
        "gap": result.certificate.gap,
        **{name: run.get(name) for name in ("days", "cost_usd", "energy_kwh")},
        **{key: value for key, value in result.changes.items() if key != "options"},
        **result.changes.get("options", {}),
    }


def _rule(result: PlanResult) -> str:
    """Why there is no plan: time, memory, or the rule that most layouts break."""
    if result.status == "unknown":
        return "max_seconds"
    if result.certificate.meshes_out_of_memory or not result.certificate.meshes_illegal:
        return "out_of_memory"
    return max(result.certificate.meshes_illegal.items(), key=lambda item: item[1])[0]


def _counts(result: PlanResult) -> str:
    certificate = result.certificate
    illegal = sum(certificate.meshes_illegal.values())
    return (
        f"of {certificate.meshes_total:,} meshes {illegal:,} are illegal and {certificate.meshes_out_of_memory:,} "
        "do not fit in memory"
    )
