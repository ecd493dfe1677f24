"""Answers of other objectives for people: the proof in the objective's unit, the run, the front as table and chart."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cost_models.units import format_bytes, format_count, format_seconds
from planner.render.console import plain, print_table, table

MAX_POINTS: Final = 24
CHART_HEIGHT: Final = 10
CHART_WIDTH: Final = 60
MARKS: Final = "abcdefghijklmnopqrstuvwxyz"


def show_proof(console: Console, proof: Mapping[str, Any]) -> None:
    """The certificate of an objective: value, bound, what was tried."""
    value, bound = proof["value"], proof["bound"]
    made = table("", "", header=False)
    made.add_row(
        "[dim]objective[/dim]", f"{plain(proof['objective'])}: {proof['sense']} {plain(proof['unit'])}"
    )
    made.add_row("[dim]value[/dim]", f"[bold]{_number(value)}[/bold]")
    gap = "" if proof["gap"] is None else f", gap {proof['gap']:.3%}"
    made.add_row("[dim]bound[/dim]", f"{_number(bound)}{gap}")
    if proof["assumption"]:
        made.add_row("[dim]assuming[/dim]", plain(proof["assumption"]))
    made.add_row("[dim]outcomes[/dim]", plain(_outcomes(proof["points"])))
    print_table(console, made, "Objective")
    points = [point for point in proof["points"] if point["value"] is not None or point["bound"] is not None]
    if points:
        print_table(console, _points(points[-MAX_POINTS:]))


def _outcomes(points: Sequence[Mapping[str, Any]]) -> str:
    counted: dict[str, int] = {}
    for point in points:
        counted[point["outcome"]] = counted.get(point["outcome"], 0) + 1
    return ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in counted.items()) or "none"


def _points(points: Sequence[Mapping[str, Any]]) -> Table:
    keys = [key for key in points[0] if key not in ("outcome", "value", "bound")]
    made = table(*keys, "outcome", "value", "bound", right=(*keys, "value", "bound"))
    for point in points:
        made.add_row(
            *(f"{point[key]:,}" for key in keys),
            point["outcome"].replace("_", " "),
            _number(point["value"]),
            _number(point["bound"]),
        )
    return made


def show_run(console: Console, run: Mapping[str, Any]) -> None:
    """Days, cost and energy of a run."""
    made = table("", "", header=False)
    for name, text in _run_rows(run):
        made.add_row(f"[dim]{name}[/dim]", text)
    print_table(console, made, "The run")


def _run_rows(run: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    goodput = run["goodput"]
    yield "length", f"{format_count(run['tokens'])} {run['unit']}, {run['steps']:,} steps"
    late = run["meets_deadline"] is False
    deadline = "" if run["deadline_s"] is None else f" ({'misses' if late else 'meets'} the deadline)"
    yield "time", f"{run['days']:,.4g} days{deadline}, {run['days_without_failures']:,.4g} without failures"
    yield (
        "goodput",
        f"{goodput['share']:.2%}: {goodput['failures_per_day']:.3g} failures a day, a checkpoint of "
        f"{format_bytes(goodput['checkpoint_bytes'])} every {run['checkpoint_every_steps']:,} steps takes "
        f"{format_seconds(goodput['checkpoint_s'])}",
    )
    cost = run["cost_usd"]
    price = run["price_per_device_hour_usd"]
    yield (
        "cost",
        "unknown: the cluster states no price; give --price-per-device-hour"
        if cost is None
        else f"{cost:,.0f} USD at {price:.4g} USD an hour and device, "
        f"{run['cost_usd_per_million_tokens']:.4g} USD per million {run['unit']}",
    )
    yield (
        "energy",
        f"{run['energy_kwh']:,.0f} kWh at rated power, {run['energy_kwh_while_busy']:,.0f} kWh while busy (estimates)",
    )


def show_front(console: Console, front: Mapping[str, Any]) -> None:
    """The front as a table, and devices against step as a chart."""
    points = front["points"]
    made = table(
        "", "devices", "step", "on device", "MFU", "plan", right=("devices", "step", "on device", "MFU")
    )
    for index, point in enumerate(points):
        made.add_row(
            MARKS[index % len(MARKS)],
            f"{point['devices']:,}",
            format_seconds(point["step_s"]),
            format_bytes(point["device_used_bytes"]),
            f"{point['mfu']:.1%}",
            plain(point.get("plan") or _degrees(point["evaluation"]["strategy"])),
        )
    title = "Front of time, memory and devices" + ("" if front["complete"] else " (time ran out)")
    print_table(console, made, title)
    if len(points) > 1:
        console.print(
            "\n[dim]step upwards, bytes on the fullest device to the right, both logarithmic[/dim]", end=""
        )
        console.print(chart([(p["device_used_bytes"], p["step_s"]) for p in points]))


def chart(points: Sequence[tuple[float, float]]) -> Text:
    """Bytes to the right and seconds upwards, both logarithmic; each point is its letter of the table."""
    import math

    across, up = ([math.log(max(p[axis], 1e-12)) for p in points] for axis in (0, 1))
    rows = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    for index, (x, y) in enumerate(zip(across, up, strict=True)):
        column = _cell(x, across, CHART_WIDTH)
        row = CHART_HEIGHT - 1 - _cell(y, up, CHART_HEIGHT)
        rows[row][column] = MARKS[index % len(MARKS)] if rows[row][column] == " " else "*"
    lines = [f"{_edge(number, points):>10} |{''.join(row)}" for number, row in enumerate(rows)]
    least, most = (format_bytes(f(p[0] for p in points)) for f in (min, max))
    lines.append(" " * 11 + "+" + "-" * CHART_WIDTH)
    lines.append(" " * 12 + least + most.rjust(CHART_WIDTH - len(least)))
    return Text("\n" + "\n".join(lines))


def _edge(number: int, points: Sequence[tuple[float, float]]) -> str:
    if number == 0:
        return format_seconds(max(seconds for _, seconds in points))
    return format_seconds(min(seconds for _, seconds in points)) if number == CHART_HEIGHT - 1 else ""


def _cell(value: float, values: Sequence[float], cells: int) -> int:
    low, high = min(values), max(values)
    return round((value - low) / (high - low) * (cells - 1)) if high > low else 0


def _degrees(strategy: Mapping[str, Any]) -> str:
    shown = [f"{k.upper()}{strategy[k]}" for k in ("tp", "cp", "pp", "vpp", "ep", "dp") if strategy[k] > 1]
    return " ".join([*shown, f"mbs {strategy['mbs']}", f"recompute {strategy['recompute']}"])


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
