"""Checkpoints of a folder for people: which steps there are, of which layout, how large, what is wrong with them."""

from collections.abc import Mapping
from typing import Any

from cost_models.units import format_bytes
from planner.render.console import make_console, plain, print_table, table


def show_checkpoints(values: Mapping[str, Any]) -> None:
    """`planner checkpoint show` for people; the values are the command's JSON."""
    console = make_console()
    made = table(
        "step", "model", "layout", "size", "next sample", "valid", right=("step", "size", "next sample")
    )
    for row in values["checkpoints"]:
        made.add_row(
            f"{row['step']:,}",
            plain(row["model"] or ""),
            plain(row["layout"] or ""),
            "" if row["bytes"] is None else format_bytes(row["bytes"]),
            "" if row["next_sample"] is None else f"{row['next_sample']:,}",
            "[green]yes[/green]" if row["valid"] else f"[red]no[/red]: {plain(row['problem'])}",
        )
    print_table(console, made)
    good = values["last_good"]
    console.print(f"\nlast good: {plain(good)}" if good else "\nno good checkpoint")
