"""A probe for people: beside the plan by cause, what it cannot show, how to carry a measurement back."""

from pathlib import Path

from cost_models.units import format_bytes, format_seconds
from planner.explain.differences import signed_bytes
from planner.probe import Carried, Probe
from planner.probe.report import CARRY, differs
from planner.render.console import make_console, plain, print_table, table
from planner.render.prediction import show_situation


def show_probe(probe: Probe, carried: Carried | None, written: Path | None) -> None:
    """`planner probe` for people; `written` is the plan file, if any."""
    console = make_console()
    show_situation(console, probe.situation)
    prediction = probe.prediction
    console.print(
        f"{plain(prediction.strategy.mesh_text())}, {probe.situation.model.num_blocks} layers, step "
        f"{format_seconds(prediction.step_s)}"
    )
    planned, shown = probe.planned, probe.shown
    columns = (f"plan, stage {planned.stage}", f"probe, stage {shown.stage}")
    made = table("on the fullest device", *columns, "difference", right=(*columns, "difference"))
    for cause in dict.fromkeys((*planned.by_cause, *shown.by_cause)):
        ours, theirs = planned.by_cause.get(cause, 0.0), shown.by_cause.get(cause, 0.0)
        if ours or theirs:
            made.add_row(
                plain(cause.replace("_", " ")),
                format_bytes(ours),
                format_bytes(theirs),
                signed_bytes(theirs - ours),
            )
    sizes = (planned.allocated_bytes, shown.allocated_bytes)
    made.add_row("allocated", *map(format_bytes, sizes), signed_bytes(sizes[1] - sizes[0]), style="bold")
    seconds = (probe.plan_layer_s, probe.probe_layer_s)
    made.add_row(
        "one layer, one micro-batch", *map(format_seconds, seconds), f"{seconds[1] / seconds[0] - 1:+.1%}"
    )
    print_table(console, made)
    console.print()
    for note in differs(probe):
        console.print(f"[dim]not shown[/dim] {plain(note)}")
    console.print(f"[dim]carry back[/dim] {CARRY}")
    if carried is not None:
        longer = carried.measured_s / carried.predicted_s - 1.0
        more = f"{signed_bytes(carried.more_bytes)} and {longer:+.1%} of the time"
        console.print(
            f"[bold]measured[/bold] {format_bytes(carried.measured_bytes)} and {format_seconds(carried.measured_s)}, "
            f"{more} against its prediction"
        )
        verdict = "which fits" if carried.fits else "which does not fit"
        console.print(
            f"[bold]carried[/bold] the plan takes {format_bytes(carried.plan_bytes)} and "
            f"{format_seconds(carried.plan_s)} a step; {format_bytes(carried.used_bytes)} of each device, {verdict}"
        )
    if written is not None:
        console.print(f"[dim]next:[/dim] planner run {plain(written)} --steps 20")
