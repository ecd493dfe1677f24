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
SIGNS: Final = {"fewest": "*", "fewest_that_fit": "+", "cheapest": "$"}
LEGEND: Final = (
    "* fewest that meet the deadline, + fewest that hold it at all, $ cheapest in the table that will do"
)


def show_size(report: "SizeReport") -> None:
    """`planner size` for people."""
    console = make_console()
    run = report.search.run
    deadline = "" if run.deadline_s is None else f" in {run.deadline_s / DAY_S:,.4g} days"
    console.print(
        f"[bold]{plain(report.model)}[/bold], {format_count(run.tokens or 0.0)} {report.unit}{deadline}"
    )
    for cluster, rows in groupby(report.rows, key=lambda row: row.cluster):
        _show_cluster(console, cluster, list(rows), report.unit)
    if any(row.marks for row in report.rows):
        console.print(f"\n[dim]{LEGEND}[/dim]")
    for line in _answers(report):
        console.print(line)
    for warning in report.warnings:
        console.print(f"[yellow]{plain(warning)}[/yellow]")
    console.print(
        f"[dim]days, cost and energy with failures: one in {run.mtbf_device_hours:,.0f} device hours, "
        f"{format_seconds(run.restart_s)} to restart; energy at rated power; docs/objectives.md[/dim]"
    )


def _show_cluster(console: Console, cluster: str, rows: Sequence["SizeRow"], unit: str) -> None:
    shown = [row for row in rows if row.has_plan]
    is_priced = any(row.values["cost_usd"] is not None for row in shown)
    money = ("USD",) if is_priced else ()
    right = ("devices", "step", "MFU", f"{unit}/day", "days", "goodput", *money, "MWh", "on device")
    made = table("", *right, "plan", right=right)
    for row in shown:
        made.add_row(*_cells(row, is_priced))
    if shown:
        print_table(console, made, plain(cluster))
    else:
        console.print(f"\n[bold]{plain(cluster)}[/bold]")
    for why, group in groupby([row for row in rows if not row.has_plan], key=_why):
        counts = ", ".join(f"{row.devices:,}" for row in group)
        console.print(f"[dim]{counts} devices: {plain(why)}[/dim]")


def _why(row: "SizeRow") -> str:
    """Why a row has no plan: the rule, and the sentence where the job itself is refused."""
    rule = str(row.values["rule"]).replace("_", " ")
    return f"{rule}: {row.values['detail']}" if row.values["status"] == "refused" else rule


def _cells(row: "SizeRow", is_priced: bool) -> tuple[str, ...]:
    values = row.values
    style = {True: "green", False: "red", None: "default"}[values["meets_deadline"]]
    cost = values["cost_usd"]
    note = f" [dim]({plain(row.note)})[/dim]" if row.note else ""
    return (
        "".join(SIGNS[mark] for mark in row.marks),
        f"{row.devices:,}",
        format_seconds(values["step_s"]),
        f"{values['mfu']:.1%}",
        format_count(values["tokens_per_day"]),
        f"[{style}]{_short(values['days'])}[/{style}]",
        f"{values['goodput']:.1%}",
        *(("" if cost is None else _short(cost),) if is_priced else ()),
        _short(values["energy_kwh"] / 1000),
        format_bytes(values["device_used_bytes"]),
        plain(_degrees(values["strategy"])) + note,
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10_000 else f"{value:,.4g}"


def _degrees(strategy: str) -> str:
    """`TP2 CP4 PP8 offload optimizer:1` of a strategy's text."""
    keys = dict(part.partition("=")[::2] for part in strategy.split(","))
    shown = [f"{key.upper()}{keys[key]}" for key in ("tp", "cp", "pp", "vpp", "ep", "dp") if keys[key] != "1"]
    offload = keys.get("offload", "none")
    return " ".join([*shown, *([] if offload == "none" else [f"offload {offload}"])]) or "1 device"


def _answers(report: "SizeReport") -> list[str]:
    """One sentence a proved mark."""
    lines = [_sentence(proof) for proof in report.proofs]
    if not report.is_yes:
        lines.append("[bold red]nothing in the table will do[/bold red]; allow more days, or more devices")
    return lines


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
    subject = "1 device is" if value == 1 else f"{value:,} devices are"
    return f"{plain(proof['cluster'])}: {subject} the fewest that {what}; {sure}"
