"""A check for people: yes or no first, then the numbers behind it."""

from cost_models.units import format_bytes, format_seconds
from planner.check import CheckReport
from planner.render.console import bar, make_console, plain


def show_check(report: CheckReport) -> None:
    """`planner check` for people."""
    console = make_console()
    prediction, memory = report.prediction, report.prediction.memory
    word = "[bold green]pass[/bold green]" if report.passed else "[bold red]fail[/bold red]"
    console.print(f"{word}  {plain(prediction.strategy.mesh_text())}")
    line = bar(memory.device_used_bytes / memory.capacity_bytes)
    line.append(
        f"  {format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} "
        f"on pipeline rank {memory.worst_stage}, margin {format_bytes(memory.margin_bytes)}, "
        f"P(out of memory) {prediction.oom_probability:.1%}",
        "default",
    )
    console.print(line)
    console.print(f"step {format_seconds(prediction.step_s)}, MFU {prediction.mfu:.1%}")
    for failure in report.failures:
        console.print(f"[red]fails[/red] {plain(failure)}")
    for warning in report.warnings:
        console.print(f"[yellow]warning[/yellow] {plain(warning)}")
