"""What `planner doctor` found, for people."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from planner.doctor import Finding
from planner.render.console import make_console, plain, table

FIRST: Final = "planner plan --model llama-3.1-8b --cluster dgx-h100:8 --seq-len 4096 --global-batch 64"
MARKS: Final = {"ok": "[green]ok[/green]", "missing": "[yellow]--[/yellow]", "wrong": "[red]wrong[/red]"}


def show_doctor(found: Sequence[Finding]) -> None:
    """A table a subject, then what to try first."""
    console = make_console()
    for subject, findings in groupby(found, key=lambda finding: finding.subject):
        console.print(f"[bold]{plain(subject)}[/bold]")
        made = table("", "", "", "", header=False)
        for each in findings:
            made.add_row(
                MARKS[each.state], plain(each.name), plain(each.detail), f"[dim]{plain(each.hint)}[/dim]"
            )
        console.print(made)
    wrong = [finding for finding in found if finding.state == "wrong"]
    if wrong:
        console.print(f"[red]{len(wrong)} wrong[/red]: {plain(wrong[0].name)}: {plain(wrong[0].hint)}")
    else:
        console.print(f"planning works here; next: {FIRST}")
