"""A plan: the best strategy, runners-up with what differs, the certificate, and what to do next."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from cost_models.units import format_bytes, format_seconds
from planner.answers import Certificate, PlanResult, Prediction
from planner.render.console import make_console, plain, print_table, show_report, table
from planner.render.objective import show_front, show_proof, show_run
from planner.render.prediction import VERDICT_STYLES, show_prediction, show_situation
from planner.situation import Situation, changed

STATUS_WORDS: Final = {
    "optimal": "[bold green]optimal[/bold green]",
    "feasible": "[bold yellow]feasible[/bold yellow], optimality not proved",
    "infeasible": "[bold red]infeasible[/bold red]: nothing legal fits",
    "unknown": "[bold yellow]unknown[/bold yellow]: the search ended before it found a plan or a proof",
}
MAX_VALUE: Final = 24
FOLLOWING_KEYS: Final = frozenset({"dp_shard", "dp_replicate", "stages"})
"""Keys that follow from others and are named only where nothing else differs."""


def show_evaluation(
    situation: Situation, prediction: Prediction, report: Path | None = None, notes: tuple[str, ...] = ()
) -> None:
    """`planner evaluate` for people."""
    console = make_console()
    show_situation(console, situation)
    show_prediction(console, prediction)
    for note in notes:
        console.print(f"[yellow]settings[/yellow] {plain(note)}")
    show_report(console, report)


def show_plan(
    situation: Situation, result: PlanResult, written: Path | None, report: Path | None = None
) -> None:
    """`planner plan` for people; `written` is the plan file and `report` the report, if any."""
    console = make_console()
    show_situation(console, changed(situation, result.changes) if result.changes else situation)
    console.print(f"{STATUS_WORDS.get(result.status, plain(result.status))}{_gap(result.certificate)}")
    if result.reason:
        console.print(plain(result.reason))
    chosen = chosen_values(result.changes)
    if chosen:
        console.print(f"[dim]of what varies[/dim] {plain(chosen)}")
    if result.best is not None:
        show_prediction(console, result.best)
        _show_alternatives(console, result.best, result.alternatives)
        if result.confidence is not None and result.confidence.sentence():
            console.print(f"[dim]how sure[/dim] {plain(result.confidence.sentence())}")
    if result.certificate.proof is not None:
        show_proof(console, result.certificate.proof)
    if result.run is not None:
        show_run(console, result.run)
    if result.front is not None:
        show_front(console, result.front.to_json())
    _show_relaxations(console, result)
    print_table(console, _certificate(result.certificate), "Certificate")
    _show_next(console, result, written)
    show_report(console, report)


def chosen_values(changes: Mapping[str, Any]) -> str:
    """`engine.grad_dtype=bf16, optimizer=adamw`: what the plan took of options that may vary."""
    own = {key: changes[key] for key in ("precision", "optimizer") if key in changes}
    values = {**changes.get("options", {}), **own}
    return ", ".join(f"{key}={str(value).lower()}" for key, value in values.items())


def differences(best: Prediction, other: Prediction) -> str:
    """The knobs of a runner-up that differ from the best plan's, as `pp 4 -> 8`."""
    ours, theirs = best.strategy.to_json(), other.strategy.to_json()
    changed = [key for key in dict.fromkeys((*ours, *theirs)) if ours.get(key) != theirs.get(key)]
    main = [key for key in changed if key not in FOLLOWING_KEYS] or changed
    return (
        ", ".join(f"{key} {_short(ours.get(key, '-'))} -> {_short(theirs.get(key, '-'))}" for key in main)
        or "nothing"
    )


def _show_alternatives(console: Console, best: Prediction, alternatives: tuple[Prediction, ...]) -> None:
    if not alternatives:
        return
    made = table("step", "slower", "MFU", "on device", "verdict", "what differs", right=("step", "slower"))
    for other in alternatives:
        style = VERDICT_STYLES[other.verdict]
        made.add_row(
            format_seconds(other.step_s),
            f"{other.step_s / best.step_s - 1:+.1%}",
            f"{other.mfu:.1%}",
            format_bytes(other.memory.device_used_bytes),
            f"[{style}]{other.verdict.replace('_', ' ')}[/{style}]",
            plain(differences(best, other)),
        )
    print_table(console, made, "Runners-up")


def _show_relaxations(console: Console, result: PlanResult) -> None:
    if not result.relaxations:
        return
    console.print("\n[bold]Smallest changes that would help[/bold]")
    for relaxation in result.relaxations:
        step = "" if relaxation.step_s is None else format_seconds(relaxation.step_s)
        shown = f" (step {step})" if step and step not in relaxation.detail else ""
        console.print(
            f"  [dim]{relaxation.cost}[/dim] {plain(relaxation.change)}: {plain(relaxation.detail)}{shown}"
        )


def _certificate(certificate: Certificate) -> Table:
    made = table("", "", header=False)
    for name, value in _certificate_rows(certificate):
        made.add_row(f"[dim]{name}[/dim]", value)
    return made


def _certificate_rows(certificate: Certificate) -> Iterator[tuple[str, str]]:
    if certificate.lower_bound_s is not None:
        yield (
            "lower bound",
            f"{format_seconds(certificate.lower_bound_s)} over the whole space{_gap(certificate)}",
        )
    illegal = sum(certificate.meshes_illegal.values())
    yield (
        "meshes",
        f"{certificate.meshes_total:,} = {illegal:,} illegal"
        f" + {certificate.meshes_out_of_memory:,} out of memory"
        f" + {certificate.meshes_bounded:,} bounded + {certificate.meshes_solved:,} solved"
        f" + {certificate.meshes_open:,} open",
    )
    if certificate.meshes_illegal:
        main = sorted(certificate.meshes_illegal.items(), key=lambda item: -item[1])[:5]
        yield "illegal by rule", plain(", ".join(f"{rule} {count:,}" for rule, count in main))
    yield "axes searched", plain(", ".join(certificate.space))
    yield "time", format_seconds(certificate.wall_s)


def _gap(certificate: Certificate) -> str:
    return "" if certificate.gap is None else f", gap {certificate.gap:.3%}"


def _show_next(console: Console, result: PlanResult, written: Path | None) -> None:
    if result.best is None:
        return
    console.print()
    if written is None:
        console.print("[dim]next:[/dim] repeat with -o plan.json, then planner check plan.json")
        return
    console.print(f"[dim]next:[/dim] planner explain {plain(written)}, then planner check {plain(written)}")


def _short(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 3] + "..."
