"""An export for people: what was written, what the framework's settings cannot say, and the script itself."""

from pathlib import Path

from planner.formats.export import Export
from planner.render.console import make_console, plain


def show_export(export: Export, written: tuple[Path, ...]) -> None:
    """`planner export` for people; the files' texts where nothing was written."""
    console = make_console()
    if not written:
        for name, text in export.files.items():
            console.print(f"[dim]# {plain(name)}[/dim]")
            console.print(plain(text), soft_wrap=True)
    console.print(f"[bold]{export.framework} {export.version}[/bold]")
    for path in written:
        console.print(f"wrote {plain(path)}")
    for loss in export.losses:
        console.print(f"[yellow]not said:[/yellow] {plain(loss)}")
    if not export.losses:
        console.print("the settings say all of the plan")
    if written:
        folder = written[0].parent
        console.print(f"next: bash {plain(folder / export.script)}" if export.script.endswith(".sh") else "")
