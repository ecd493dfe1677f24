"""A plan made again for people: what becomes of the step, what the checkpoint needs, then the plan itself."""

from pathlib import Path

from planner.render.console import make_console, plain
from planner.render.plan import show_plan
from planner.replan import CHECKPOINTS, Replan


def show_replan(found: Replan, written: Path | None) -> None:
    """`planner plan --from` for people; `written` is the plan file, if any."""
    console = make_console()
    console.print(plain(found.sentence()))
    if found.difference is not None:
        console.print(f"[dim]what differs[/dim] {plain(found.difference.knob_text())}")
        cut = found.resharded()
        text = f"cut anew by {', '.join(cut)}" if cut else "loads as it is"
        engine = CHECKPOINTS.get(found.situation.engine.name, "")
        console.print(f"[dim]checkpoint[/dim] {plain(text)}; {plain(engine)}")
    for note in found.notes:
        console.print(f"[dim]needs[/dim] {plain(note)}")
    console.print()
    show_plan(found.situation, found.result, written)
