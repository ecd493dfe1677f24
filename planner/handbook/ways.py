"""What a rank holds under each way of splitting: one small picture of the weights and of the batch for each."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANKS: Final = 4
CELLS: Final = 4
"""Cells of a side: layers by width of the weights, sequences by tokens of the batch."""
COLOURS: Final = ("#1f6fb4", "#d1772a", "#2f8f4e", "#8a4fb0")
SHARED: Final = "#d5d9df"
Owner = Callable[[int, int], int | None]
"""Rank that holds a cell (row, column); None where every rank does."""


def _all(_row: int, _column: int) -> int | None:
    return None


def _rows(row: int, _column: int) -> int | None:
    return row * RANKS // CELLS


def _columns(_row: int, column: int) -> int | None:
    return column * RANKS // CELLS


def _flat(row: int, column: int) -> int | None:
    """A piece of every layer's weights for each rank, gathered when the layer is computed."""
    return (column * RANKS // CELLS + row * RANKS // CELLS) % RANKS


def _experts(row: int, column: int) -> int | None:
    """Attention on every rank, experts below it each on one."""
    return None if row % 2 == 0 else column * RANKS // CELLS


def _square(row: int, column: int) -> int | None:
    return 2 * (row * 2 // CELLS) + column * 2 // CELLS


@dataclass(frozen=True, slots=True)
class Way:
    """Who holds the weights (layers down, width across) and who works on what of the batch (sequences, tokens)."""

    title: str
    weights: Owner
    batch: Owner


WAYS: Final = (
    Way("data parallel", _all, _rows),
    Way("ZeRO-3, FSDP", _flat, _rows),
    Way("pipeline", _rows, _all),
    Way("tensor", _columns, _all),
    Way("context", _all, _columns),
    Way("expert", _experts, _rows),
    Way("tensor x pipeline", _square, _all),
)


def ways(figure: "Figure") -> None:
    """One panel a way: the weights on the left, the batch on the right, a colour and a number a rank."""
    panels = figure.subplots(2, 4)
    for axes in panels.flat:
        axes.axis("off")
    for axes, way in zip(panels.flat, WAYS, strict=False):
        _panel(axes, way)
    words = "left: weights,\nlayers down, width across\n\nright: a batch,\nsequences down, tokens across\n\n"
    panels.flat[-1].text(
        0.0, 0.5, f"{words}number: the rank that\nholds it; grey: every rank", va="center", fontsize=7.5
    )


def _panel(axes: "Axes", way: Way) -> None:
    axes.set_title(way.title, fontsize=9)
    axes.set_aspect("equal")
    axes.set_xlim(-0.15, 2 * CELLS + 1.15)
    axes.set_ylim(CELLS + 0.15, -0.15)
    for left, owner in ((0, way.weights), (CELLS + 1, way.batch)):
        _square_of(axes, left, owner)


def _square_of(axes: "Axes", left: int, owner: Owner) -> None:
    """Cells in their owner's colour; the owner's number stands in the largest of its blocks."""
    from matplotlib.patches import Rectangle

    for row in range(CELLS):
        for column in range(CELLS):
            held = owner(row, column)
            colour = SHARED if held is None else COLOURS[held]
            axes.add_patch(
                Rectangle((left + column, row), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.5)
            )
    for held in (None, *range(RANKS)):
        block = _largest(owner, held)
        if block is None:
            continue
        top, first, bottom, last = block
        style: Any = {"color": "#333333" if held is None else "white", "weight": "bold", "fontsize": 8}
        text = "all" if held is None else str(held)
        axes.text(
            left + (first + last + 1) / 2, (top + bottom + 1) / 2, text, ha="center", va="center", **style
        )


def _largest(owner: Owner, held: int | None) -> tuple[int, int, int, int] | None:
    """The largest block of neighbouring equal rows that a rank holds: first row and column, last row and column."""
    rows = [tuple(c for c in range(CELLS) if owner(row, c) == held) for row in range(CELLS)]
    blocks = []
    for columns, same in groupby(enumerate(rows), key=lambda item: item[1]):
        places = [row for row, _ in same]
        if columns:
            blocks.append((len(places) * len(columns), (places[0], columns[0], places[-1], columns[-1])))
    return max(blocks)[1] if blocks else None
