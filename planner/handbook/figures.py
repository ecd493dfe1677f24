"""Pictures of the pages on parallelism: timelines from the simulator, memory and seconds from predictions.

Needs the extra `report` (matplotlib); the same predictions give the same file, byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

from cost_models.schedule import Phase
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.handbook import cases
from planner.handbook.cases import CONTEXT, EXPERT, HYBRID, HYBRIDS, PIPELINE, TENSOR, ZERO, Case, fullest
from planner.handbook.ways import ways
from planner.simulate import simulate
from planner.validation.figures import SETTINGS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#1f6fb4", "#d1772a", "#2f8f4e", "#8a4fb0", "#9a9a9a", "#c0392b")
HATCHES: Final = ("", "//", "..", "xx", "", "\\\\")
PHASES: Final = {Phase.FORWARD: 0, Phase.BACKWARD: 1, Phase.INPUT_GRADIENT: 1, Phase.WEIGHT_GRADIENT: 2}
LANE: Final = 0.86
"""Height of an operation in its rank's row."""

Draw = Callable[["Figure"], None]


def timelines(figure: "Figure") -> None:
    """1F1B, interleaved and ZB-H1 of the same four stages and eight micro-batches."""
    case = Case(PIPELINE.model, PIPELINE.cluster, PIPELINE.devices, PIPELINE.engine, 8, PIPELINE.seq_len)
    texts = (
        ("GPipe", "schedule=gpipe"),
        ("1F1B", "schedule=1f1b"),
        ("interleaved", "vpp=2"),
        ("ZB-H1", "schedule=zb-h1"),
    )
    rows = figure.subplots(len(texts), 1, sharex=True)
    for axes, (title, words) in zip(rows, texts, strict=True):
        _timeline(axes, case, f"pp=4,{words}")
        axes.set_title(title, loc="left", fontsize=9)
    rows[-1].set_xlabel(
        "seconds; one row a pipeline rank, forward blue, backward orange, weight gradient green"
    )


def _timeline(axes: "Axes", case: Case, words: str) -> None:
    found = simulate(case.situation(), parse_strategy(words)).operations
    for rank, phase, batch, start_s, end_s in zip(
        found.rank, found.phase, found.micro_batch, found.start_s, found.end_s, strict=True
    ):
        colour = COLOURS[PHASES[Phase(int(phase))]]
        axes.barh(
            rank, end_s - start_s, left=start_s, height=LANE, color=colour, edgecolor="white", linewidth=0.4
        )
        axes.text(
            (start_s + end_s) / 2, rank, str(batch), ha="center", va="center", fontsize=5, color="white"
        )
    axes.invert_yaxis()
    axes.set_yticks(range(4))


def zero_states(figure: "Figure") -> None:
    """Bytes of a device by cause under the four stages of ZeRO."""
    causes = ("weights", "gradients", "optimizer", "activations", "transient")
    columns = {f"ZeRO-{stage}": _gib(ZERO.predict(f"zero={stage}"), causes) for stage in range(4)}
    _stacked(figure.subplots(), columns, causes, "GiB at the peak")


def server_and_ring(figure: "Figure") -> None:
    """Seconds of a step by number of GPUs: a ring stays flat, a server's link fills."""
    axes = figure.subplots()
    sizes = (8, 16, 32, 64, 128)
    for index, engine in enumerate(("ddp", "parameter_server")):
        steps = [cases.resnet(devices, engine).predict().step_s for devices in sizes]
        axes.plot(
            sizes, steps, marker="os"[index], color=COLOURS[index], label=("ring", "parameter server")[index]
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_xlabel("GPUs, 64 images each")
    axes.set_ylabel("seconds a step")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)


def tensor_seconds(figure: "Figure") -> None:
    """Where a step's seconds go by tensor parallel degree."""
    causes = ("compute", "tp_communication", "dp_communication", "optimizer", "other")
    columns = {str(tp): _parts(TENSOR, f"tp={tp}", causes) for tp in (1, 2, 4, 8, 16)}
    _stacked(figure.subplots(), columns, causes, "seconds a step", "tensor parallel degree")


def expert_memory(figure: "Figure") -> None:
    """Bytes of a device by cause by expert parallel degree."""
    causes = ("weights", "gradients", "optimizer", "activations", "transient")
    columns = {str(ep): _gib(EXPERT.predict(f"pp=4,ep={ep}"), causes) for ep in (1, 2, 4, 8)}
    _stacked(figure.subplots(), columns, causes, "GiB at the peak", "expert parallel degree")


def context_memory(figure: "Figure") -> None:
    """Bytes of a device by cause by context parallel degree: activations divide, states do not."""
    causes = ("weights", "gradients", "optimizer", "activations", "transient")
    case = replace(CONTEXT, global_batch=16)
    columns = {str(cp): _gib(case.predict(f"cp={cp},recompute=full"), causes) for cp in (1, 2, 4, 8, 16)}
    _stacked(figure.subplots(), columns, causes, "GiB at the peak", "context parallel degree")


def hybrid_seconds(figure: "Figure") -> None:
    """Where a step's seconds go in the layouts that one might try by hand."""
    causes = ("compute", "tp_communication", "cp_communication", "pp_communication", "pp_bubble", "other")
    columns = {fill(title, 13): _parts(HYBRID, words, causes) for title, words in HYBRIDS.items()}
    axes = figure.subplots()
    _stacked(axes, columns, causes, "seconds a step")
    axes.set_ylim(top=1.4 * max(sum(parts) for parts in columns.values()))  # room for the key
    axes.legend(frameon=False, fontsize=8, ncols=3)


FIGURES: Final[Mapping[str, tuple[Draw, tuple[float, float]]]] = {
    "timelines": (timelines, (7.2, 6.4)),
    "zero_states": (zero_states, (5.2, 3.4)),
    "server_and_ring": (server_and_ring, (5.2, 3.4)),
    "tensor_seconds": (tensor_seconds, (5.2, 3.4)),
    "expert_memory": (expert_memory, (5.2, 3.4)),
    "context_memory": (context_memory, (5.2, 3.4)),
    "hybrid_seconds": (hybrid_seconds, (7.2, 3.6)),
    "ways": (ways, (7.6, 2.7)),
}
"""Name of the file, what draws it, and its size in inches."""


def write_figures(folder: Path) -> tuple[Path, ...]:
    """Draw every figure as an SVG file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (draw, inches) in FIGURES.items():
        with rc_context(SETTINGS):
            figure = Figure(figsize=inches, layout="constrained")
            draw(figure)
            written.append(folder / f"{name}.svg")
            figure.savefig(written[-1], metadata={"Date": None})
    return tuple(written)


def _gib(found: Any, causes: Sequence[str]) -> list[float]:
    held = fullest(found).by_cause
    return [held.get(cause, 0.0) / GIB for cause in causes]


def _parts(case: Case, words: str, causes: Sequence[str]) -> list[float]:
    seconds = case.predict(words).breakdown_s
    return [seconds[cause] for cause in causes]


def _stacked(
    axes: "Axes", columns: Mapping[str, Sequence[float]], causes: Sequence[str], unit: str, below: str = ""
) -> None:
    """Columns of parts, told apart by colour and by hatching."""
    bottoms = [0.0] * len(columns)
    for index, cause in enumerate(causes):
        values = [parts[index] for parts in columns.values()]
        style: Any = {"color": COLOURS[index], "hatch": HATCHES[index], "edgecolor": "white"}
        axes.bar(list(columns), values, bottom=bottoms, label=cause.replace("_", " "), width=0.62, **style)
        bottoms = [low + value for low, value in zip(bottoms, values, strict=True)]
    axes.set_ylabel(unit)
    axes.set_xlabel(below)
    axes.legend(frameon=False, fontsize=8)
