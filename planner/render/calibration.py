"""A calibration for people, from its JSON object."""

from collections.abc import Mapping
from typing import Any

from planner.render.console import make_console, plain, print_table, table


def show_calibration(answer: Mapping[str, Any], folder: str) -> None:
    """`planner calibrate` for people: errors before and after, ratios, and where they were written."""
    console, errors = make_console(), answer["errors"]
    made = table("", "runs", "before", "after", right=["runs", "before", "after"])
    for name, runs in (("fitted", answer["fitted_runs"]), ("held_out", answer["held_out_runs"])):
        cells = (f"{100 * errors[f'{name}_{when}']:.1f} %" for when in ("before", "after"))
        made.add_row(name.replace("_", " "), str(runs), *cells)
    print_table(console, made, "Mean error of the step time")
    for name, ratio in answer["ratios"].items():
        console.print(f"{plain(name)} x {ratio:.3f}")
    if answer["written"]:
        console.print(f"written to {plain(folder)}; use it with PARALLELISM_PLANNER_PROFILES={plain(folder)}")
    else:
        console.print("not written: runs that were not fitted to are predicted worse with it")
