"""A sweep from its items to its table: what is done is skipped, the rest solved, every row kept as it comes."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from planner.answers import finite
from planner.plan_file import write_whole
from planner.sweep.items import SweepItem
from planner.sweep.pool import solve_all
from planner.sweep.solve import Row
from planner.sweep.store import Store

PLANNED: Final = ("optimal", "feasible")
TABLE, SUMMARY = "results.csv", "summary.json"

COLUMNS: Final = (
    "model",
    "cluster",
    "devices",
    "seq_len",
    "global_batch",
    "precision",
    "engine",
    "optimizer",
    "options",
    "status",
    "rule",
    "step_s",
    "tokens_per_s_per_device",
    "samples_per_s_per_device",
    "mfu",
    "device_used_bytes",
    "verdict",
    "oom_probability",
    "gap",
    "days",
    "cost_usd",
    "energy_kwh",
    "strategy",
    "wall_s",
    "detail",
    "key",
)

OnRow = Callable[[int, int, Row], None]


@dataclass(frozen=True, slots=True)
class SweepReport:
    """All rows in the order of the items; how many were there before, and where they lie."""

    rows: tuple[Row, ...]
    num_skipped: int
    folder: Path

    @property
    def num_planned(self) -> int:
        """Rows with a plan."""
        return sum(row["status"] in PLANNED for row in self.rows)

    def to_json(self) -> dict[str, object]:
        """`planner sweep --json`: the rows without their documents, which `results.jsonl` holds."""
        return {
            "rows": [{key: value for key, value in row.items() if key != "document"} for row in self.rows],
            "by_status": dict(Counter(str(row["status"]) for row in self.rows)),
            "by_rule": dict(Counter(str(row["rule"]) for row in self.rows if row.get("rule"))),
            "planned": self.num_planned,
            "skipped": self.num_skipped,
            "output": str(self.folder),
        }


def run_sweep(
    items: Sequence[SweepItem], store: Store, jobs: int = 0, on_row: OnRow | None = None
) -> SweepReport:
    """Solve what the store does not hold yet, then write table and summary beside the rows.

    An interrupt leaves every finished row in the store; the same call goes on from there.
    """
    left = [item for item in items if not store.has(item.key)]
    done = len(items) - len(left)
    for index, row in solve_all((item.request for item in left), jobs):
        item = left[index]
        store.add({"key": item.key, **item.labels} | row)
        done += 1
        if on_row is not None:
            on_row(done, len(items), store.rows[item.key])
    rows = tuple(store.rows[item.key] for item in items)
    report = SweepReport(rows, len(items) - len(left), store.folder)
    write_whole(store.folder / TABLE, table_text(rows), "table", "-o")
    write_whole(store.folder / SUMMARY, _json_text(report.to_json()), "summary", "-o")
    return report


def table_text(rows: Sequence[Row]) -> str:
    """The rows as CSV; absent values are empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_cell(row.get(column)) for column in COLUMNS])
    return stream.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict):
        return " ".join(f"{key}={inner}" for key, inner in value.items())
    return "" if value is None else value


def _json_text(payload: dict[str, object]) -> str:
    import json

    return json.dumps(finite(payload), allow_nan=False, indent=1) + "\n"
