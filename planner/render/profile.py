"""A measured profile for people, from its JSON object: coverage, and a model's layers beside their prediction."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from cost_models.units import format_bytes, format_seconds
from planner.render.console import make_console, plain, print_table, table


def show_profile(answer: Mapping[str, Any]) -> None:
    """`planner profile` for people."""
    console = make_console()
    ended = "complete" if answer["complete"] else "cut short, used as far as it goes"
    console.print(
        f"[bold]{plain(answer['device'])}[/bold]: {answer['measured']} of {answer['cases']} cases in "
        f"{answer['spent_s']:.0f} s, {ended}; load before {answer['load_before']:.1f} a core, clock {answer['clock']}"
    )
    made = table("curve", "points", "precisions", "processes", "interval", right=("points", "interval"))
    for line in answer["coverage"]:
        names = (", ".join(line["precisions"]), ", ".join(str(n) for n in line["processes"]))
        made.add_row(plain(line["name"]), str(line["points"]), *names, f"+- {100 * line['half_width']:.0f} %")
    print_table(console, made, "Measured")
    show_layers(console, answer["layers"])
    if answer["layer_median_error"] is not None:
        console.print(f"layers: median error {100 * answer['layer_median_error']:.1f} %")
    for why in answer["not_run"]:
        console.print(f"[dim]not run[/dim] {plain(why)}")
    console.print(f"written to {plain(answer['folder'])}")


def show_layers(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """Layers: time, rate, bytes and saved memory, predicted beside measured."""
    if not rows:
        return
    columns = (
        "pass",
        "mbs",
        "at once",
        "measured",
        "predicted",
        "ratio",
        "GFLOP/s",
        "moves",
        "saves",
        "predicted",
    )
    made = table("layer", *columns, right=columns[1:])
    for row in rows:
        saved = (
            (row["saved_bytes"], row["predicted_saved_bytes"]) if row["phase"] == "forward" else (None, None)
        )
        made.add_row(
            plain(row["kind"]),
            row["phase"],
            str(row["mbs"]),
            str(row["processes"]),
            format_seconds(row["measured_s"]),
            format_seconds(row["predicted_s"]),
            f"{row['ratio']:.2f}",
            f"{row['flops_per_s'] / 1e9:,.0f}",
            format_bytes(row["moved_bytes"]),
            *("" if value is None else format_bytes(value) for value in saved),
        )
    print_table(console, made, "Layers, predicted from the profile's kernels beside measured as a whole")


def show_device_file(answer: Mapping[str, Any]) -> None:
    """`planner profile --device-file` for people."""
    written = plain(answer["written"])
    make_console().print(
        f"{plain(answer['device'])} as measured in {plain(answer['profile'])}, written to {written}; "
        f"plan with --cluster {written}"
    )
