"""The loop for people, from its JSON object: steps and memory predicted beside measured, errors by kind of layout."""

from collections.abc import Mapping
from typing import Any

from cost_models.units import format_bytes, format_seconds
from planner.render.console import make_console, plain, print_table, table
from planner.render.profile import show_layers


def show_loop(answer: Mapping[str, Any]) -> None:
    """`planner loop` for people."""
    console = make_console()
    ended = "complete" if answer["complete"] else "cut short"
    console.print(
        f"profile {plain(answer['profile'])} ({ended}); load before {answer['load_before']:.1f} a core; "
        f"{answer['wall_s']:.0f} s in all"
    )
    columns = ("ranks", "predicted", "wall", "ratio", "processor", "ratio", "memory", "ratio", "load")
    made = table("layout", *columns, right=columns)
    for row in answer["rows"]:
        name = f"{row['engine']} {row['layout']}" + (" (planned)" if row["planned"] else "")
        if row["failure"]:
            made.add_row(plain(name), str(row["processes"]), plain(row["failure"]))
            continue
        made.add_row(
            plain(name),
            str(row["processes"]),
            format_seconds(row["predicted_step_s"]),
            format_seconds(row["measured_step_s"]),
            _times(row["ratio"]),
            format_seconds(row["busy_step_s"]),
            _times(row["busy_ratio"]),
            format_bytes(row["measured_bytes"]),
            _times(row["predicted_bytes"] / row["measured_bytes"]),
            f"{row['load']:.1f}",
        )
    print_table(console, made, "Steps and peak memory, predicted / measured")
    show_layers(console, answer["layers"])
    _show_errors(answer["summary"])


def _show_errors(summary: Mapping[str, Any]) -> None:
    console = make_console()
    made = table("kind of layout", "wall", "processor", "aim", right=("wall", "processor", "aim"))
    for group, error in summary["errors"].items():
        cells = (error, summary["busy_errors"][group], summary["limits"][group])
        made.add_row(plain(group), *(f"{100 * value:.0f} %" for value in cells))
    print_table(console, made, "Median error of the step")
    found = (summary["correlation"], summary["busy_correlation"])
    wall, busy = ("none" if value is None else f"{value:.2f}" for value in found)
    console.print(f"rank correlation of predicted steps: {wall} with the wall, {busy} with processor seconds")


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
