"""A run for people: measured beside predicted, memory by pipeline rank, where the time went; or a verification."""

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console

from cost_models.units import format_bytes, format_seconds
from planner.render.console import make_console, plain, print_table, table

MAX_STAGE_ROWS: Final = 16


def show_run(title: str, values: Mapping[str, Any]) -> None:
    """`planner run` for people: the title says what ran, the values are the command's JSON."""
    console = make_console()
    device = plain(values["end"].get("device", ""))
    console.print(
        f"[bold]{plain(title)}[/bold], {values['steps']} steps on {values['world_size']} ranks of {device}"
    )
    _show_past(console, values)
    if values["measured"] is None:
        console.print("\nnothing was left to do")
        return
    measured, predicted, ratios = values["measured"], values["predicted"], values["ratio"]
    made = table("", "measured", "predicted", "predicted / measured", right=("measured", "predicted"))
    made.add_row(
        "[dim]step[/dim]",
        format_seconds(measured["step_s"]),
        format_seconds(predicted["step_s"]),
        _times(ratios["step_s"]),
    )
    made.add_row(
        "[dim]peak memory[/dim]",
        format_bytes(measured["peak_bytes"]),
        format_bytes(predicted["peak_bytes"]),
        _times(ratios["peak_bytes"]),
    )
    print_table(console, made)
    console.print(
        f"\n{measured['tokens_per_s']:,.0f} {measured['unit']}/s, "
        f"loss {measured['first_loss']:.5g} -> {measured['last_loss']:.5g}"
    )
    _show_stages(console, values["parts"]["stages"])
    _show_times(console, values["parts"]["time"])


def show_verification(title: str, values: Mapping[str, Any]) -> None:
    """`planner run --verify` for people: the title says what ran, the values are the command's JSON."""
    console = make_console()
    word = "[bold green]equal[/bold green]" if values["verified"] else "[bold red]differs[/bold red]"
    console.print(f"{word}  {plain(title)}, {values['steps']} steps beside one process")
    made = table(
        "", "largest relative difference", "limit", "where", right=("largest relative difference", "limit")
    )
    for name, limit in values["limits"].items():
        difference = values["max_relative_difference"][name]
        made.add_row(
            f"[dim]{name}[/dim]", f"{difference:.1e}", f"{limit:.0e}", plain(values["worst"].get(name, ""))
        )
    print_table(console, made)


def _show_past(console: Console, values: Mapping[str, Any]) -> None:
    """Where the run went on, how often it was restarted, and its last checkpoint."""
    resumed, restarts, kept = values["resumed"], values["restarts"], values["checkpoints"]
    if resumed and resumed["step"]:
        console.print(f"went on after step {resumed['step']:,} of {plain(resumed['path'])}")
    for restart in restarts:
        where = f"step {restart['step']:,}, {plain(restart['phase'])}"
        console.print(f"restarted after rank {restart['rank']} ended ({where}): {plain(restart['message'])}")
    if kept:
        console.print(f"last checkpoint: {plain(kept[-1]['path'])}")
    loaded, saved = values["weights"], values["saved"]
    if loaded:
        most = format_bytes(max(loaded["read_bytes"]))
        console.print(
            f"weights of {plain(loaded['path'])}: {format_bytes(loaded['bytes'])}, a rank read up to {most}"
        )
    if saved:
        size = format_bytes(saved["bytes"])
        console.print(
            f"weights written to {plain(saved['path'])}: {size} of {saved['dtype']} in {saved['files']} files"
        )


def _show_stages(console: Console, stages: list[Mapping[str, Any]]) -> None:
    if len(stages) == 1:
        return
    made = table("stage", "measured", "predicted", "predicted / measured", right=("measured", "predicted"))
    for stage in stages[:MAX_STAGE_ROWS]:
        made.add_row(
            str(stage["stage"]),
            format_bytes(stage["measured_bytes"]),
            format_bytes(stage["predicted_bytes"]),
            _times(stage["ratio"]),
        )
    print_table(console, made, "Peak memory by pipeline rank")


def _show_times(console: Console, parts: Mapping[str, Any] | None) -> None:
    if parts is None:
        return
    made = table("", "measured", "predicted", right=("measured", "predicted"))
    for name in ("communication", "rest"):
        values = parts[name]
        made.add_row(
            f"[dim]{name}[/dim]", format_seconds(values["measured_s"]), format_seconds(values["predicted_s"])
        )
    print_table(console, made, "Where the step's time went (the rank that communicates least)")


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
