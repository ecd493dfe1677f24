"""Predicted against measured, drawn: one figure a source for docs/accuracy.md, one of all for `validate --plot`.

Needs the extra `report` (matplotlib); the same predictions give the same file, byte for byte.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cost_models.errors import BadInput
from cost_models.units import GIB
from planner.validation.predict import Outcome
from planner.validation.ranking import grouped
from planner.validation.report import ValidationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: Final = (".svg", ".png", ".pdf")
NEAR: Final = 0.1
"""Half width of the shaded band, relative."""

PANEL_INCHES: Final = (4.2, 3.8)
MARKER: Final = 14
SETTINGS: Final[Any] = {
    "svg.hashsalt": "parallelism-planner",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
LABELS: Final = {"allocated": "allocated", "reserved": "reserved", "device_used": "nvidia-smi"}
COLOURS: Final = ("#1f6fb4", "#d1772a", "#2f8f4e", "#8a4fb0")

Points = dict[str, list[tuple[float, float]]]


def plot_report(report: ValidationReport, path: Path) -> None:
    """Write one figure of all predicted rows; raises BadInput for another format, or without matplotlib."""
    if path.suffix.lower() not in FORMATS:
        raise BadInput(f"--plot {path.name[:80]!r} ends in none of {', '.join(FORMATS)}; give such a file")
    _write([o for o in report.outcomes if o.skipped is None], "all sources", path)


def write_figures(report: ValidationReport, folder: Path) -> tuple[Path, ...]:
    """Write one figure a source and remove those of sources that are gone; the files, in order of the sources."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for source, rows in grouped([o for o in report.outcomes if o.skipped is None], _source).items():
        if _steps(rows) or _memory(rows):
            written.append(folder / f"{source}.svg")
            _write(rows, source, written[-1])
    for path in folder.glob("*.svg"):
        if path not in written:
            path.unlink()
    return tuple(written)


def _source(outcome: Outcome) -> str:
    return outcome.run.source


def _write(rows: Sequence[Outcome], title: str, path: Path) -> None:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput(
            f"figures need matplotlib ({error}); install parallelism-planner[report], or leave --plot out"
        ) from error
    panels = [("seconds a step", _steps(rows)), ("GiB at the peak", _memory(rows))]
    drawn = [(unit, points) for unit, points in panels if points] or panels[:1]
    width, height = PANEL_INCHES
    with rc_context(SETTINGS):
        figure = Figure(figsize=(width * len(drawn), height), layout="constrained")
        figure.suptitle(title)
        for axes, (unit, points) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn, strict=True):
            _panel(axes, unit, points)
        _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    stamps = {".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None, "Creator": None}}
    try:
        figure.savefig(path, metadata=stamps.get(path.suffix.lower(), {"Software": None}))
    except OSError as error:
        raise BadInput(f"--plot {path} cannot be written ({error}); give another file") from error


def _panel(axes: "Axes", unit: str, points: Points) -> None:
    """Measured across, predicted up, on logarithmic axes; exact is the diagonal."""
    flat = [value for found in points.values() for pair in found for value in pair] or [1.0]
    low, high = min(flat) / 1.3, max(flat) * 1.3
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    axes.fill_between(
        [low, high],
        [low / (1 + NEAR), high / (1 + NEAR)],
        [low * (1 + NEAR), high * (1 + NEAR)],
        color="#000000",
        alpha=0.07,
        linewidth=0,
    )
    axes.plot([low, high], [low, high], color="#888888", linewidth=0.8)
    for (label, found), colour in zip(points.items(), COLOURS, strict=False):
        measured, predicted = zip(*found, strict=True)
        axes.scatter(
            measured,
            predicted,
            s=MARKER,
            alpha=0.7,
            linewidths=0,
            color=colour,
            label=f"{label} ({len(found)})",
        )
    axes.set_xlabel(f"measured, {unit}")
    axes.set_ylabel(f"predicted, {unit}")
    if points:
        axes.legend(frameon=False, loc="upper left")


def _steps(rows: Sequence[Outcome]) -> Points:
    found: Points = {}
    for outcome in rows:
        if outcome.step_error is not None and outcome.step_s and outcome.run.step_s:
            label = "a knob assumed" if outcome.assumed else "all knobs stated"
            found.setdefault(label, []).append((outcome.run.step_s, outcome.step_s))
    return dict(sorted(found.items()))


def _memory(rows: Sequence[Outcome]) -> Points:
    found: Points = {}
    for outcome in rows:
        if outcome.memory_error is not None and outcome.predicted_bytes and outcome.run.memory_bytes:
            label = LABELS[outcome.run.counter or "allocated"]
            pair = (outcome.run.memory_bytes / GIB, outcome.predicted_bytes / GIB)
            found.setdefault(label, []).append(pair)
    return dict(sorted(found.items()))
