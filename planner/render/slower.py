"""Why a run is slower than predicted, for people, from its JSON object."""

from collections.abc import Mapping
from typing import Any

from cost_models.units import format_seconds
from planner.render.console import make_console, plain, print_table, table


def show_slower(answer: Mapping[str, Any]) -> None:
    """`planner explain --measured` for people."""
    console = make_console()
    more = answer["slower_by"]
    word = f"{100 * more:.0f} % slower" if more >= 0 else f"{-100 * more:.0f} % faster"
    inside = "inside" if answer["within_interval"] else "outside"
    measured, predicted = (
        format_seconds(answer["measured_step_s"]),
        format_seconds(answer["predicted_step_s"]),
    )
    console.print(
        f"[bold]{word}[/bold] than predicted: {measured} against {predicted}, {inside} the 90 % interval"
    )
    made = table(
        "part of the step",
        "predicted",
        "measured",
        "difference",
        right=("predicted", "measured", "difference"),
    )
    for part in answer["parts"]:
        told = part["measured_s"]
        difference = "" if told is None else f"{part['difference_s']:+.3g} s"
        shown = "" if told is None else format_seconds(told)
        made.add_row(plain(part["name"]), format_seconds(part["predicted_s"]), shown, difference)
    print_table(console, made, "Where the step's time went")
    for sentence in answer["causes"] or ["no part is noticeably longer than predicted"]:
        console.print(plain(sentence))
    for note in answer["notes"]:
        console.print(f"[dim]{plain(note)}[/dim]")
