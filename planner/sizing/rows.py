"""One row of a size table: how long and how dear the run is on one number of devices; which rows stand out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.objectives.goodput import DAY_S

FEWEST, FEWEST_THAT_FIT, CHEAPEST = MARKS = ("fewest", "fewest_that_fit", "cheapest")
"""The fewest devices that reach the deadline and the fewest on which anything fits, both proved over the declared
counts; the least cost (device hours where no price is known) among the rows of the table that will do."""

RUN_COLUMNS: Final = (
    "days",
    "days_without_failures",
    "tokens_per_day",
    "device_hours",
    "cost_usd",
    "energy_kwh",
    "energy_kwh_while_busy",
    "checkpoint_every_steps",
)
PLAN_COLUMNS: Final = (
    "status",
    "rule",
    "detail",
    "step_s",
    "step_s_low",
    "step_s_high",
    "lower_bound_s",
    "gap",
    "mfu",
    "verdict",
    "device_used_bytes",
    "strategy",
    "wall_s",
)


@dataclass(frozen=True, slots=True)
class SizeRow:
    """The plan and the run on `devices` of one cluster; numbers are None where there is no plan."""

    cluster: str
    devices: int
    values: Mapping[str, Any]
    marks: tuple[str, ...] = ()
    note: str = ""

    @property
    def has_plan(self) -> bool:
        """Whether something fits."""
        return self.values["step_s"] is not None

    @property
    def will_do(self) -> bool:
        """Whether there is a plan that reaches the deadline, if one was stated."""
        return self.has_plan and self.values["meets_deadline"] is not False

    def to_json(self) -> dict[str, object]:
        """One entry of `rows`."""
        head = {"cluster": self.cluster, "devices": self.devices}
        return head | dict(self.values) | {"marks": list(self.marks), "note": self.note}


def row_of(cluster: str, devices: int, solved: Mapping[str, Any], deadline_s: float | None) -> SizeRow:
    """The row of a solved request."""
    run: Mapping[str, Any] = solved.get("document", {}).get("result", {}).get("run") or {}
    values = {key: solved.get(key) for key in PLAN_COLUMNS} | {key: run.get(key) for key in RUN_COLUMNS}
    values["goodput"] = run.get("goodput", {}).get("share")
    days = values["days"]
    meets = None if deadline_s is None or values["step_s"] is None else False
    if meets is False and days is not None and deadline_s is not None:
        meets = days * DAY_S <= deadline_s
    values["meets_deadline"] = meets
    return SizeRow(cluster, int(solved.get("devices") or devices), values)


def with_cheapest(rows: Sequence[SizeRow]) -> tuple[SizeRow, ...]:
    """Mark the least cost among the rows that will do; device hours where some of them state no cost.

    Device hours of different devices do not compare, so without prices only one cluster is marked.
    """
    doing = [row for row in rows if row.will_do]
    priced = bool(doing) and all(row.values["cost_usd"] is not None for row in doing)
    if not doing or (not priced and len({row.cluster for row in doing}) > 1):
        return tuple(rows)
    key = "cost_usd" if priced else "device_hours"
    best = min(doing, key=lambda row: (row.values[key], row.devices))
    return tuple(replace(row, marks=(*row.marks, CHEAPEST)) if row is best else row for row in rows)


def with_notes(rows: Sequence[SizeRow]) -> tuple[SizeRow, ...]:
    """Say where a row trains fewer tokens a day than one with fewer devices of the same cluster."""
    return tuple(replace(row, note=_note(row, rows)) for row in rows)


def _note(row: SizeRow, rows: Sequence[SizeRow]) -> str:
    if not row.has_plan:
        return ""
    fewer = [r for r in rows if r.cluster == row.cluster and r.has_plan and r.devices < row.devices]
    best = max(fewer, key=lambda r: r.values["tokens_per_day"], default=row)
    slower = best.values["tokens_per_day"] > row.values["tokens_per_day"]
    return f"slower than {best.devices:,} devices" if slower else ""
