"""A simulated step: a timeline of the pipeline, one line a rank, and where each rank waits."""

from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cost_models.schedule import Phase
from cost_models.units import format_seconds
from planner.render.console import make_console, plain, print_table, table
from planner.render.prediction import show_situation
from planner.simulate import RankTimeline, Simulation
from planner.situation import Situation

MAX_LINES: Final = 32
LABEL_WIDTH: Final = 5
LETTERS: Final = {
    Phase.FORWARD: ("F", "green"),
    Phase.BACKWARD: ("B", "blue"),
    Phase.INPUT_GRADIENT: ("I", "cyan"),
    Phase.WEIGHT_GRADIENT: ("W", "magenta"),
}
PAIR: Final = ("P", "bright_blue")
IDLE: Final = (".", "dim")
REDUCTION: Final = ("R", "yellow")
OPTIMIZER: Final = ("O", "red")
REST: Final = ("-", "dim")


def show_simulation(situation: Situation, simulation: Simulation) -> None:
    """Everything about one simulated step."""
    console = make_console()
    show_situation(console, situation)
    console.print(plain(simulation.strategy.mesh_text()))
    _show_timeline(console, simulation)
    print_table(console, _ranks(simulation), "Pipeline ranks: where the step's time goes")
    left_out = len(simulation.ranks) - len(shown_ranks(simulation))
    if left_out > 0:
        console.print(f"[dim]... {left_out} more ranks, see --json[/dim]")


def timeline_cells(simulation: Simulation, rank: RankTimeline, width: int) -> list[tuple[str, str]]:
    """Letter and style of `width` equal slices of the step on one rank, each what runs in its middle."""
    made = simulation.operations
    mine = np.flatnonzero(made.rank == rank.rank)
    mine = mine[~made.joined[mine]]
    joins = bool(made.joined.any())
    starts, ends = made.start_s[mine], made.end_s[mine]
    last_s = float(ends.max())
    reduced_s = last_s + rank.reduction_exposed_s
    stepped_s = simulation.barrier_s + rank.tail_s
    cells: list[tuple[str, str]] = []
    for middle_s in (np.arange(width) + 0.5) * (simulation.makespan_s / width):
        place = int(np.searchsorted(starts, middle_s, side="right")) - 1
        if place >= 0 and middle_s < ends[place]:
            in_pair = joins and bool(made.paired[mine[place]])
            cells.append(PAIR if in_pair else LETTERS[Phase(int(made.phase[mine[place]]))])
        elif last_s <= middle_s < reduced_s:
            cells.append(REDUCTION)
        elif simulation.barrier_s <= middle_s < stepped_s:
            cells.append(OPTIMIZER)
        else:
            cells.append(REST if middle_s >= simulation.tail_end_s else IDLE)
    return cells


def shown_ranks(simulation: Simulation) -> list[RankTimeline]:
    """Ranks that get a line: all, or the first and the last of many."""
    ranks = list(simulation.ranks)
    if len(ranks) <= MAX_LINES:
        return ranks
    half = MAX_LINES // 2
    return ranks[:half] + ranks[-half:]


def _show_timeline(console: Console, simulation: Simulation) -> None:
    width = max(console.width - LABEL_WIDTH, 20)
    console.print()
    each = format_seconds(simulation.makespan_s / width)
    console.print(f"[bold]Timeline[/bold] of {format_seconds(simulation.makespan_s)}, {each} a column")
    before = -1
    for rank in shown_ranks(simulation):
        if rank.rank != before + 1:
            console.print("[dim]...[/dim]")
        before = rank.rank
        line = Text(f"{rank.rank:<{LABEL_WIDTH}}")
        for letter, style in timeline_cells(simulation, rank, width):
            line.append(letter, style)
        console.print(line, overflow="crop", no_wrap=True)
    console.print(
        "[dim]F forward, B backward, I input gradient, W weight gradient, P forward beside backward, R exposed "
        "gradient reduction, O optimizer and exposed gather, . idle, - per-step overhead and the slowest rank[/dim]"
    )


def _ranks(simulation: Simulation) -> Table:
    names = ("rank", "operations", "busy", "bubble", "of the step", "reduction", "optimizer", "in flight")
    made = table(*names, right=names)
    for rank in shown_ranks(simulation):
        made.add_row(
            str(rank.rank),
            f"{rank.operations:,}",
            format_seconds(rank.busy_s),
            format_seconds(rank.bubble_s),
            f"{100 * rank.bubble_fraction:.1f}%",
            format_seconds(rank.reduction_exposed_s),
            format_seconds(rank.tail_s),
            str(rank.in_flight_peak),
        )
    return made
