"""A calibration for people, from its JSON object."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from cost_models.units import format_bytes
from planner.render.console import make_console, plain, print_table, table


def show_calibration(answer: Mapping[str, Any], folder: str) -> None:
    """`planner calibrate` for people: errors before and after, what was found, and where it was written."""
    console = make_console()
    _show_errors(console, answer, "Mean error of the step time")
    for name, ratio in answer["ratios"].items():
        console.print(f"{plain(name)} x {ratio:.3f}")
    if not answer["steps_written"]:
        console.print("ratios not written: runs that were not fitted to are predicted worse with them")
    memory = answer["memory"]
    if memory is not None:
        _show_errors(console, memory, "Mean error of the peak memory")
        for name, shift in memory["beside_bytes"].items():
            console.print(
                f"{plain(name)}: {'-' if shift < 0 else '+'}{format_bytes(abs(shift))} beside the tensors"
            )
        if not memory["written"]:
            console.print("bytes not written: runs that were not fitted to are predicted worse with them")
    if answer["written"]:
        console.print(f"written to {plain(folder)}; use it with PARALLELISM_PLANNER_PROFILES={plain(folder)}")


def _show_errors(console: Console, answer: Mapping[str, Any], title: str) -> None:
    made, errors = table("", "runs", "before", "after", right=["runs", "before", "after"]), answer["errors"]
    for name, runs in (("fitted", answer["fitted_runs"]), ("held_out", answer["held_out_runs"])):
        cells = (f"{100 * errors[f'{name}_{when}']:.1f} %" for when in ("before", "after"))
        made.add_row(name.replace("_", " "), str(runs), *cells)
    print_table(console, made, title)
