"""A sweep for people: one line a row, and where the rest lies."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cost_models.units import format_bytes, format_seconds
from planner.render.console import make_console, plain, print_table, table

if TYPE_CHECKING:
    from planner.sweep.report import SweepReport

MAX_ROWS: Final = 100
ALWAYS: Final = ("model", "cluster")
VARYING: Final = ("seq_len", "global_batch", "precision", "engine", "optimizer", "options")


def show_sweep(report: "SweepReport") -> None:
    """`planner sweep` for people; labels that are the same everywhere are left out."""
    console = make_console()
    rows = report.rows
    keys = [*ALWAYS, *(key for key in VARYING if len({str(row.get(key)) for row in rows}) > 1)]
    made = table(
        *(key.replace("_", " ") for key in keys),
        "status",
        "step",
        "MFU",
        "on device",
        "plan or rule",
        right=("step", "MFU"),
    )
    for row in rows[:MAX_ROWS]:
        made.add_row(*(plain(_label(row.get(key))) for key in keys), *_answer(row))
    print_table(console, made)
    if len(rows) > MAX_ROWS:
        console.print(f"[dim]... {len(rows) - MAX_ROWS} more rows, see results.csv[/dim]")
    before = f", {report.num_skipped} of them from before" if report.num_skipped else ""
    console.print(
        f"\n{report.num_planned} of {len(rows)} rows have a plan{before}; {plain(report.folder)}: results.jsonl, "
        "results.csv, summary.json"
    )


def _answer(row: Mapping[str, Any]) -> tuple[str, ...]:
    status = plain(row["status"])
    if row.get("step_s") is None:
        return status, "", "", "", plain(f"{row.get('rule')}: {str(row.get('detail') or '')[:160]}")
    strategy = row["document"]["result"]["best"]["strategy"] if "document" in row else {}
    degrees = [
        f"{k.upper()}{strategy[k]}" for k in ("tp", "cp", "pp", "vpp", "ep", "dp") if strategy.get(k, 1) > 1
    ]
    return (
        status,
        format_seconds(row["step_s"]),
        f"{row['mfu']:.1%}",
        format_bytes(row["device_used_bytes"]),
        plain(" ".join(degrees) or "1 device"),
    )


def _label(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={inner}" for key, inner in value.items())
    return "" if value is None else str(value)
