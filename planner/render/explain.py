"""Explanations and comparisons for people."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from cost_models.units import format_bytes, format_seconds
from planner.answers import Prediction
from planner.compare import Comparison
from planner.explain import Contrast, Difference, Explanation
from planner.explain.binding import StageBinding
from planner.explain.differences import signed_bytes, signed_seconds
from planner.explain.facts import LayoutFacts, layout_facts
from planner.render.console import bar, make_console, plain, print_table, show_report, table
from planner.render.prediction import VERDICT_STYLES, show_situation
from planner.situation import Situation

MAX_STAGE_ROWS: Final = 16
VERDICT_WORDS: Final = {
    "same": "[bold]the same[/bold]",
    "slower": "[bold green]slower than the plan[/bold green]",
    "faster": "[bold yellow]faster than the plan[/bold yellow]",
    "does_not_fit": "[bold red]does not fit[/bold red]",
    "illegal": "[bold red]illegal[/bold red]",
    "unknown": "[bold yellow]not known[/bold yellow]",
}


def show_explanation(situation: Situation, found: Explanation, report: Path | None = None) -> None:
    """`planner explain` for people; `report` is the report that was written, if any."""
    console = make_console()
    show_situation(console, situation)
    console.print(f"{plain(found.plan.strategy.mesh_text())}, step {format_seconds(found.plan.step_s)}")
    console.print(plain(found.summary()))
    _show_facts(console, {"": found.facts})
    _show_stages(console, found.stages)
    _show_axes(console, found)
    _show_runners_up(console, found)
    made = table("better hardware", "step", "less", "how", right=("step", "less"))
    for change in found.sensitivity:
        after = change.after_s
        gain = "" if change.gain is None else f"{change.gain:.1%}"
        made.add_row(
            plain(change.name),
            "" if after is None else format_seconds(after),
            gain,
            plain(change.why or change.how),
        )
    print_table(console, made, "What better hardware would buy")
    show_report(console, report)


def show_contrast(situation: Situation, contrast: Contrast, report: Path | None = None) -> None:
    """`planner explain --against` for people."""
    console = make_console()
    show_situation(console, situation)
    _show_contrast(console, situation, contrast)
    show_report(console, report)


def _show_contrast(console: Console, situation: Situation, contrast: Contrast) -> None:
    console.print(f"{VERDICT_WORDS[contrast.verdict]}: {plain(contrast.asked)}")
    if contrast.verdict != "illegal":
        console.print(plain(contrast.sentence()))
    for violation in contrast.violations:
        source = f" [dim]({plain(violation.source)})[/dim]" if violation.source else ""
        console.print(f"[red]rule {plain(violation.rule)}[/red]: {plain(violation.sentence())}{source}")
    if not contrast.violations and contrast.why and contrast.verdict == "illegal":
        console.print(plain(contrast.why))
    if contrast.other is None or contrast.difference is None:
        return
    console.print(f"\n[dim]what differs[/dim] {plain(contrast.difference.knob_text())}")
    names = ("the plan", contrast.asked if len(contrast.asked) <= 24 else "the other")
    both = (contrast.plan, contrast.other)
    _show_facts(console, dict(zip(names, (layout_facts(situation, p.strategy) for p in both), strict=True)))
    _show_seconds(console, both, contrast.difference, names)
    _show_memory(console, both, contrast.difference, names)


def show_unsolved(result: Mapping[str, Any]) -> None:
    """Why a plan file holds no plan."""
    console = make_console()
    console.print(f"[bold red]{plain(result.get('status'))}[/bold red]: the plan file holds no plan")
    console.print(plain(result.get("reason") or "no reason was written"))
    made = table("what would help", "costs", "how")
    for change in result.get("relaxations") or ():
        made.add_row(plain(change.get("change")), plain(change.get("cost", "")), plain(change.get("detail")))
    if made.row_count:
        print_table(console, made)


def show_comparison(found: Comparison, names: tuple[str, str], report: Path | None = None) -> None:
    """`planner compare` for people."""
    console = make_console()
    show_situation(console, found.first.situation)
    for key, (ours, theirs) in found.question.items():
        console.print(f"[yellow]other question[/yellow] {plain(key)}: {plain(ours)} -> {plain(theirs)}")
    console.print(plain(found.sentence()))
    titles = (_title(names[0], "first"), _title(names[1], "second"))
    made = table("knob", *titles)
    for key, (ours, theirs) in found.difference.knobs.items():
        made.add_row(plain(key), plain(_word(ours)), plain(_word(theirs)))
    print_table(console, made, "Knobs that differ")
    both = (found.first.prediction, found.second.prediction)
    _show_facts(console, dict(zip(titles, (found.first.facts, found.second.facts), strict=True)))
    _show_seconds(console, both, found.difference, titles)
    _show_memory(console, both, found.difference, titles)
    show_report(console, report)


def _show_facts(console: Console, facts: Mapping[str, LayoutFacts]) -> None:
    made = table("", *facts, header=len(facts) > 1)
    rows: dict[str, Callable[[LayoutFacts], str]] = {
        "micro-batches": lambda f: f"{f.micro_batches:,}",
        "bubble (p - 1) / (v m)": lambda f: f"{f.bubble:.1%}",
        "in flight on stage 0": lambda f: (
            f"{f.in_flight:.3g} micro-batch" + ("" if f.in_flight == 1 else "es")
        ),
        "layers per stage": lambda f: f.layers_per_stage,
        "tokens of a matrix product": lambda f: f"{f.tokens:,}",
        "ranks that share the states": lambda f: f"{f.gradient_shards:,}",
        "vocabulary, padded": lambda f: f"{f.vocabulary_rows:,}",
        "slowest link of each axis": lambda f: ", ".join(f"{axis} {tier}" for axis, tier in f.links.items()),
    }
    for name, value in rows.items():
        made.add_row(f"[dim]{name}[/dim]", *(plain(value(each)) for each in facts.values()))
    print_table(console, made)


def _show_stages(console: Console, stages: Sequence[StageBinding]) -> None:
    made = table(
        "stage",
        "busy",
        "slack",
        "time follows",
        "memory",
        "free",
        "a layer takes",
        right=("busy", "slack", "free", "a layer takes"),
    )
    rows = list(_equal(stages))
    for first, last, stage in rows[:MAX_STAGE_ROWS]:
        shares = sorted(stage.shares.items(), key=lambda item: -item[1])[:3]
        made.add_row(
            str(first) if first == last else f"{first}-{last}",
            format_seconds(stage.busy_s),
            format_seconds(stage.slack_s) if stage.slack_s else "paces",
            plain(", ".join(f"{key.replace('_', ' ')} {share:.0%}" for key, share in shares)),
            "[yellow]full[/yellow]" if stage.memory_binds else "has room",
            format_bytes(stage.room_bytes),
            format_bytes(stage.block_bytes),
        )
    print_table(console, made, "What binds each stage (seconds of a step)")
    if len(rows) > MAX_STAGE_ROWS:
        console.print(f"[dim]... {len(rows) - MAX_STAGE_ROWS} more rows, see --json[/dim]")


def _equal(stages: Sequence[StageBinding]) -> Iterator[tuple[int, int, StageBinding]]:
    """Neighbouring stages that look the same."""

    def look(stage: StageBinding) -> tuple[object, ...]:
        return format_seconds(stage.busy_s), stage.memory_binds, format_bytes(stage.room_bytes)

    for _, same in groupby(stages, key=look):
        run = list(same)
        yield run[0].stage, run[-1].stage, run[0]


def _show_axes(console: Console, found: Explanation) -> None:
    made = table(
        "axis", "change", "step", "slower", "where", "fullest stage", "how", right=("step", "slower")
    )
    for axis in found.axes:
        for other in axis.alternatives:
            moved = other.difference
            change = f"{_word(axis.value)} -> {_word(other.value)}"
            if moved is None or other.prediction is None:
                made.add_row(axis.axis, plain(change), "", "", plain(other.why), "", other.how)
                continue
            made.add_row(
                axis.axis,
                plain(change),
                format_seconds(moved.second_s),
                f"{moved.step_s / moved.first_s:+.1%}",
                plain(moved.where()),
                signed_bytes(moved.worst_bytes),
                other.how,
            )
    print_table(console, made, "What each axis costs and saves (the best layout with that value)")


def _show_runners_up(console: Console, found: Explanation) -> None:
    if not found.runners_up:
        return
    made = table("step", "slower", "P(plan faster)", "verdict", "what differs", right=("step", "slower"))
    for other in found.runners_up:
        style = VERDICT_STYLES[other.prediction.verdict]
        made.add_row(
            format_seconds(other.prediction.step_s),
            f"{other.difference.step_s / other.difference.first_s:+.1%}",
            f"{other.plan_faster:.0%}",
            f"[{style}]{other.prediction.verdict.replace('_', ' ')}[/{style}]",
            plain(other.difference.knob_text()),
        )
    print_table(console, made, "Runners-up")


def _show_seconds(
    console: Console, both: tuple[Prediction, Prediction], moved: Difference, names: tuple[str, str]
) -> None:
    made = table("cause", *names, "difference", "", right=(*names, "difference"))
    first, second = (prediction.breakdown_s for prediction in both)
    scale = max((abs(value) for value in moved.seconds.values()), default=0.0) or 1.0
    for cause, value in sorted(moved.seconds.items(), key=lambda item: -abs(item[1])):
        if first.get(cause, 0.0) or second.get(cause, 0.0):
            made.add_row(
                cause.replace("_", " "),
                format_seconds(first.get(cause, 0.0)),
                format_seconds(second.get(cause, 0.0)),
                signed_seconds(value),
                bar(abs(value) / scale, style="red" if value > 0 else "green"),
            )
    made.add_row(
        "step", *(format_seconds(p.step_s) for p in both), signed_seconds(moved.step_s), style="bold"
    )
    print_table(console, made, "Where the step's time goes")


def _show_memory(
    console: Console, both: tuple[Prediction, Prediction], moved: Difference, names: tuple[str, str]
) -> None:
    made = table("stage", *names, "difference", "of it", right=(*names, "difference"))
    for stage in moved.stages[:MAX_STAGE_ROWS]:
        values = (stage.first_bytes, stage.second_bytes)
        shown = ["" if value is None else format_bytes(value) for value in values]
        change = "" if None in values else signed_bytes((values[1] or 0.0) - (values[0] or 0.0))
        causes = sorted(stage.by_cause.items(), key=lambda item: -abs(item[1]))[:2]
        of_it = ", ".join(f"{signed_bytes(value)} {cause}" for cause, value in causes if value)
        made.add_row(str(stage.stage), *shown, change, plain(of_it))
    capacity = format_bytes(both[0].memory.capacity_bytes)
    print_table(console, made, f"Memory on the device by pipeline stage (capacity {capacity})")


def _title(name: str, fallback: str) -> str:
    return plain(name) if len(name) <= 24 else fallback


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
