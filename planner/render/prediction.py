"""One prediction: summary, memory of each pipeline rank by cause, where the step's time goes."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.table import Table

from cost_models.specs.cluster import ClusterSpec
from cost_models.units import GIB, TERA, format_bytes, format_count, format_seconds
from planner.answers import Prediction, StageMemory
from planner.render.console import bar, plain, print_table, table
from planner.render.model import BUILT, READERS
from planner.situation import Situation

VERDICT_STYLES: Final = {"fits": "green", "at_risk": "yellow", "does_not_fit": "red"}
MAX_CAUSES: Final = 5
MAX_STAGE_ROWS: Final = 16
MAX_NOTES: Final = 12
MAX_STAGES_TEXT: Final = 60


def show_situation(console: Console, situation: Situation) -> None:
    """One line: which model on which cluster for which job."""
    job, cluster = situation.job, situation.cluster
    length = f"{job.image_size} px" if situation.model.is_vision else f"sequence {job.seq_len:,}"
    console.print(
        f"[bold]{plain(situation.model.name)}[/bold] on {cluster.num_devices:,} devices of "
        f"[bold]{plain(cluster.name)}[/bold]{plain(_groups(cluster))}, {length}, "
        f"global batch {job.global_batch:,}, "
        f"{job.precision.value}, {plain(situation.engine.name)}@{plain(situation.engine.version)}"
    )


def _groups(cluster: ClusterSpec) -> str:
    """` (64 a100 + 64 h100)` where there are several groups of devices."""
    if not cluster.is_mixed:
        return ""
    groups = zip(cluster.group_names, cluster.groups, strict=True)
    return f" ({' + '.join(f'{group.num_devices:,} {name}' for name, group in groups)})"


def show_prediction(console: Console, prediction: Prediction) -> None:
    """Everything about one strategy."""
    print_table(console, _summary(prediction))
    print_table(console, _memory(prediction), "Memory per pipeline stage at its peak, GiB")
    left_out = len(list(_equal_stages(prediction))) - MAX_STAGE_ROWS
    if left_out > 0:
        console.print(f"[dim]... {left_out} rows above the last are left out, see --json[/dim]")
    print_table(
        console,
        _time(prediction),
        f"Where the step's time goes (stage {prediction.critical_stage}, the least idle)",
    )
    _show_notes(console, prediction)


def _summary(prediction: Prediction) -> Table:
    memory = prediction.memory
    made = table("", "", header=False)
    style = VERDICT_STYLES[prediction.verdict]
    tokens = prediction.tokens_per_s_per_device
    rate = (
        f"{prediction.samples_per_s_per_device:,.1f} samples/s"
        if tokens is None
        else f"{tokens:,.0f} tokens/s"
    )
    rows = {
        "strategy": plain(prediction.strategy.mesh_text()),
        "layers per chunk" if prediction.strategy.vpp > 1 else "layers per stage": plain(_stages(prediction)),
        "step": f"[bold]{format_seconds(prediction.step_s)}[/bold]  "
        f"(90 %: {format_seconds(prediction.step_s_low)} to {format_seconds(prediction.step_s_high)})",
        "per GPU": f"{rate}, {prediction.model_flops_per_s_per_device / TERA:,.0f} TFLOP/s of model FLOPs, "
        f"MFU [bold]{prediction.mfu:.1%}[/bold]",
        "memory": f"[{style}]{prediction.verdict.replace('_', ' ')}[/{style}]: "
        f"{format_bytes(memory.device_used_bytes)} of {format_bytes(memory.capacity_bytes)} "
        f"on pipeline rank {memory.worst_stage} (peak in {plain(memory.peak_phase)}), "
        f"P(out of memory) {prediction.oom_probability:.1%}",
        "model": f"{format_count(prediction.parameters)} parameters"
        + (
            f", {format_count(prediction.active_parameters)} active"
            if prediction.active_parameters != prediction.parameters
            else ""
        )
        + (f", {READERS[prediction.reader]}" if prediction.reader in BUILT else ""),
    }
    for name, value in rows.items():
        made.add_row(f"[dim]{name}[/dim]", value)
    return made


def _stages(prediction: Prediction) -> str:
    text = "+".join(str(count) for count in prediction.strategy.stages)
    runs = [(count, len(list(same))) for count, same in groupby(prediction.strategy.stages)]
    short = ", ".join(f"{count} on {times}" if times > 1 else f"{count}" for count, times in runs)
    return text if len(text) <= MAX_STAGES_TEXT else short


def _memory(prediction: Prediction) -> Table:
    """Stages with equal numbers share a row; the least causes are summed up as `other`."""
    memory = prediction.memory
    causes = _main_causes(memory.stages)
    names = [cause.replace("_", " ") for cause in causes]
    mixed = any(stage.group for stage in memory.stages)
    made = table(
        "stage",
        *(["group"] if mixed else []),
        "layers",
        *names,
        "allocated",
        "on device",
        "of the device" if mixed else f"of {memory.capacity_bytes / GIB:.1f}",
        right=("layers", *names, "allocated", "on device"),
    )
    for column in made.columns:
        column.no_wrap = True
    rows = list(_equal_stages(prediction))
    for first, last, stage in (
        rows if len(rows) <= MAX_STAGE_ROWS else [*rows[: MAX_STAGE_ROWS - 1], rows[-1]]
    ):
        share = stage.device_used_bytes / (stage.capacity_bytes or memory.capacity_bytes)
        worst = first <= memory.worst_stage <= last
        made.add_row(
            f"{first}" if first == last else f"{first}-{last}",
            *([f"{plain(stage.group)} {_gib(stage.capacity_bytes)}"] if mixed else []),
            f"{_num_layers(prediction, first)}",
            *(_gib(value) for value in _causes_of(stage, causes)),
            _gib(stage.allocated_bytes),
            _gib(stage.device_used_bytes),
            bar(share, style="red" if share > 1 else "yellow" if worst else "cyan"),
            style="bold" if worst and len(memory.stages) > 1 else None,
        )
    return made


def _num_layers(prediction: Prediction, rank: int) -> int:
    """Blocks on a pipeline rank: every pp-th virtual stage is its own."""
    return sum(prediction.strategy.stages[rank :: prediction.strategy.pp])


def _main_causes(stages: tuple[StageMemory, ...]) -> tuple[str, ...]:
    """The causes that are largest on any stage, largest first, and `other` for the rest."""
    largest: dict[str, float] = {}
    for stage in stages:
        for cause, value in stage.by_cause.items():
            largest[cause] = max(largest.get(cause, 0.0), value)
    named = sorted((c for c in largest if largest[c] > 0), key=lambda cause: -largest[cause])
    if len(named) <= MAX_CAUSES:
        return tuple(named)
    kept = [cause for cause in named if cause != "other"][: MAX_CAUSES - 1]
    return (*kept, "other")


def _causes_of(stage: StageMemory, causes: tuple[str, ...]) -> Iterator[float]:
    rest = sum(stage.by_cause.values()) - sum(stage.by_cause.get(c, 0.0) for c in causes if c != "other")
    for cause in causes:
        yield rest if cause == "other" else stage.by_cause.get(cause, 0.0)


def _equal_stages(prediction: Prediction) -> Iterator[tuple[int, int, StageMemory]]:
    """Neighbouring stages that look the same, as first, last and one of them."""

    def look(stage: StageMemory) -> tuple[object, ...]:
        shown = _gib(stage.allocated_bytes), _gib(stage.device_used_bytes)
        return _num_layers(prediction, stage.stage), stage.group, *shown

    for _, same in groupby(prediction.memory.stages, key=look):
        run = list(same)
        yield run[0].stage, run[-1].stage, run[0]


def _time(prediction: Prediction) -> Table:
    made = table("cause", "time", "share", "", right=("time", "share"))
    shown = {cause: value for cause, value in prediction.breakdown_s.items() if value > 0}
    for cause, value in sorted(shown.items(), key=lambda item: -item[1]):
        share = value / prediction.step_s
        extra = ""
        if cause == "compute" and prediction.recompute_s > 0:
            extra = f"  of it recompute {format_seconds(prediction.recompute_s)}"
        cell = bar(share)
        cell.append(extra, "dim")
        made.add_row(cause.replace("_", " "), format_seconds(value), f"{share:.1%}", cell)
    return made


def _show_notes(console: Console, prediction: Prediction) -> None:
    """Warnings, what was assumed, and how the figures are known."""
    notes = [f"[yellow]warning[/yellow] {plain(warning)}" for warning in prediction.warnings]
    notes += [
        f"[dim]assumed[/dim] {plain(a.key)} = {plain(a.value)}"
        + (" (changes the parameter count)" if a.changes_parameters else "")
        for a in prediction.assumed
    ]
    if prediction.provenance:
        notes.append(f"[dim]figures[/dim] {plain(_pairs(prediction.provenance))}")
    if notes:
        console.print()
    for note in notes[:MAX_NOTES]:
        console.print(note)
    if len(notes) > MAX_NOTES:
        console.print(f"[dim]... {len(notes) - MAX_NOTES} more, see --json[/dim]")


def _pairs(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f}"
