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
    columns = (
        "ranks",
        "predicted",
        "wall",
        "ratio",
        "processor",
        "ratio",
        "memory",
        "ratio",
        "reserved",
        "load",
    )
    made = table("layout", *columns, right=columns)
    many = len({row["model"] for row in answer["rows"]}) > 1
    for row in answer["rows"]:
        name = f"{row['engine']} {row['layout']}" + (" (planned)" if row["planned"] else "")
        if many:
            name = f"{row['model']} {name}"
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
            _times(row["predicted_reserved_bytes"] / row["measured_reserved_bytes"]),
            f"{row['load']:.1f}",
        )
    print_table(console, made, "Steps and peak memory, predicted / measured")
    show_layers(console, answer["layers"])
    _show_errors(answer["summary"])


def _show_errors(summary: Mapping[str, Any]) -> None:
    console = make_console()
    columns = ("wall", "processor", "without the profile", "aim")
    made = table("kind of layout", *columns, right=columns)
    for group, error in summary["errors"].items():
        others = (summary[key][group] for key in ("busy_errors", "unprofiled_errors", "limits"))
        made.add_row(plain(group), *(f"{100 * value:.0f} %" for value in (error, *others)))
    print_table(console, made, "Median error of the step")
    if summary["memory_error"] is not None and summary["reserved_error"] is not None:
        allocated, reserved = (f"{100 * summary[key]:.1f} %" for key in ("memory_error", "reserved_error"))
        console.print(f"median error of peak memory: {allocated} allocated, {reserved} reserved")
    found = (summary["correlation"], summary["busy_correlation"])
    wall, busy = ("none" if value is None else f"{value:.2f}" for value in found)
    console.print(f"rank correlation of predicted steps: {wall} with the wall, {busy} with processor seconds")


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
