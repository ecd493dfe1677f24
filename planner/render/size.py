"""A size table for people: one table a cluster, marks for the rows that stand out, what could not be said."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from cost_models.units import format_bytes, format_count, format_seconds
from planner.render.console import make_console, plain, print_table, table

if TYPE_CHECKING:
    from planner.sizing.rows import SizeRow
    from planner.sizing.size import SizeReport

DAY_S: Final = 86_400.0
WORDS: Final = {"fewest": "fewest in time", "fewest_that_fit": "fewest that fit", "cheapest": "cheapest here"}


def show_size(report: "SizeReport") -> None:
    """`planner size` for people."""
    console = make_console()
    run = report.search.run
    deadline = "" if run.deadline_s is None else f" in {run.deadline_s / DAY_S:,.4g} days"
    console.print(
        f"[bold]{plain(report.model)}[/bold], {format_count(run.tokens or 0.0)} {report.unit}{deadline}"
    )
    for cluster, rows in groupby(report.rows, key=lambda row: row.cluster):
        _show_cluster(console, cluster, list(rows))
    for line in _answers(report):
        console.print(line)
    for warning in report.warnings:
        console.print(f"[yellow]{plain(warning)}[/yellow]")
    console.print(
        f"[dim]days, cost and energy with failures: one in {run.mtbf_device_hours:,.0f} device hours, "
        f"{format_seconds(run.restart_s)} to restart; energy at rated power; docs/objectives.md[/dim]"
    )


def _show_cluster(console: Console, cluster: str, rows: Sequence["SizeRow"]) -> None:
    shown = [row for row in rows if row.has_plan]
    right = ("devices", "step", "MFU", "tokens a day", "days", "goodput", "cost USD", "energy MWh")
    made = table(*right, "on device", "plan", "", right=right)
    for row in shown:
        made.add_row(*_cells(row))
    if shown:
        print_table(console, made, plain(cluster))
    else:
        console.print(f"\n[bold]{plain(cluster)}[/bold]")
    for status, group in groupby(
        [row for row in rows if not row.has_plan],
        key=lambda r: (r.values["rule"], r.values["detail"] if r.values["status"] == "refused" else ""),
    ):
        counts = ", ".join(f"{row.devices:,}" for row in group)
        console.print(f"[dim]{counts} devices: {plain(': '.join(part for part in status if part))}[/dim]")


def _cells(row: "SizeRow") -> tuple[str, ...]:
    values = row.values
    days = f"{values['days']:,.4g}"
    style = {True: "green", False: "red", None: "default"}[values["meets_deadline"]]
    words = [WORDS[mark] for mark in row.marks] + ([row.note] if row.note else [])
    return (
        f"{row.devices:,}",
        format_seconds(values["step_s"]),
        f"{values['mfu']:.1%}",
        format_count(values["tokens_per_day"]),
        f"[{style}]{days}[/{style}]",
        f"{values['goodput']:.1%}",
        "" if values["cost_usd"] is None else f"{values['cost_usd']:,.0f}",
        f"{values['energy_kwh'] / 1000:,.4g}",
        format_bytes(values["device_used_bytes"]),
        plain(_degrees(values["strategy"])),
        plain(", ".join(words)),
    )


def _degrees(strategy: str) -> str:
    """`TP2 CP4 PP8` of a strategy's text."""
    pairs = (part.partition("=") for part in strategy.split(","))
    shown = ("tp", "cp", "pp", "vpp", "ep", "dp")
    return (
        " ".join(f"{key.upper()}{value}" for key, _, value in pairs if key in shown and value != "1")
        or "1 device"
    )


def _answers(report: "SizeReport") -> list[str]:
    """One sentence a proved mark."""
    lines = []
    for proof in report.proofs:
        lines.append(_sentence(proof))
    if not report.is_yes:
        lines.append("[bold red]nothing in the table will do[/bold red]; allow more days, or more devices")
    return ["", *lines] if lines else []


def _sentence(proof: Any) -> str:
    what = "meet the deadline" if proof["mark"] == "fewest" else "hold it at all"
    value, bound = proof["value"], proof["bound"]
    if value is None:
        return f"{plain(proof['cluster'])}: no number of devices was found to {what}"
    sure = (
        "every smaller count ruled out"
        if bound == value
        else f"counts from {bound:,} are not ruled out, time ran out"
    )
    return f"{plain(proof['cluster'])}: {value:,} devices are the fewest that {what}; {sure}"
