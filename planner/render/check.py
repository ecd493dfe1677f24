"""A check for people: yes or no first, then the numbers behind it."""

from rich.console import Console

from cost_models.units import format_bytes, format_seconds
from planner.checking import CheckReport
from planner.gate import NamedCheck
from planner.render.console import bar, make_console, plain


def show_checks(checks: tuple[NamedCheck, ...]) -> None:
    """`planner check` for people: one job, or every job under its name and a last line that counts."""
    console = make_console()
    for check in checks:
        if len(checks) > 1:
            console.print(f"\n[bold]{plain(check.name)}[/bold]")
        if check.report is None:
            console.print(f"[bold red]fail[/bold red]  {plain(check.refusal)}")
        else:
            _show_report(console, check.report)
        for note in check.notes:
            console.print(f"[yellow]warning[/yellow] {plain(note)}")
    if len(checks) > 1:
        failed = sum(not check.passed for check in checks)
        word = (
            f"[bold red]{failed} of {len(checks)} fail[/bold red]"
            if failed
            else "[bold green]all pass[/bold green]"
        )
        console.print(f"\n{word}")


def _show_report(console: Console, report: CheckReport) -> None:
    """One job's answer and numbers."""
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
