"""A model for people: totals, kinds of layers with their FLOPs, what was assumed."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Console

from cost_models.units import format_count
from planner.render.console import make_console, plain, print_table, table

COUNTS: Final = (
    "parameters",
    "trainable_parameters",
    "active_parameters",
    "embedding_parameters",
    "head_parameters",
    "mtp_parameters",
)
FIGURES: Final = ("layers", "parameters each", "active", "FLOPs", "attention")
READERS: Final = {
    "huggingface": "read by its family's reader",
    "layers": "a layers file",
    "transformers": "as transformers builds it",
    "torch_module": "a module of its own",
}
BUILT: Final = frozenset({"transformers", "torch_module"})
"""Readers that build a module; a prediction names them, as their costs are a library's own."""
MAX_RUNS: Final = 24
"""Longer orders of layers are left to --json."""


def show_model(facts: Mapping[str, Any]) -> None:
    """`planner inspect` for people."""
    console = make_console()
    how = READERS.get(facts["reader"], plain(facts["reader"]))
    console.print(f"[bold]{plain(facts['name'])}[/bold] ({plain(facts['family'])}), {how}")
    _show_totals(console, facts)
    _show_kinds(console, facts)
    _show_order(console, facts["layers"])
    _show_assumed(console, facts["assumed"])


def _show_totals(console: Console, facts: Mapping[str, Any]) -> None:
    """Parameters by role and the FLOPs of a token."""
    made = table("", "", "", header=False)
    for key in COUNTS:
        if facts[key] or key == "parameters":
            note = format_count(facts[key])
            if key == "embedding_parameters" and facts["tied_embeddings"]:
                note += ", also the head's matrix"
            made.add_row(f"[dim]{key.replace('_', ' ')}[/dim]", f"{facts[key]:>19,}", note)
    per = "sample" if facts["seq_len"] is None else f"token at sequence {facts['seq_len']:,}"
    total, attention = facts["forward_flops_per_token"], facts["attention_flops_per_token"]
    share = f", {attention / total:.1%} of it in attention's scores" if total and attention else ""
    made.add_row("[dim]forward FLOPs[/dim]", f"{total:>19.4g}", f"per {per}{share}")
    console.print(made)
    console.print("[dim]buffers (batch statistics, routers' correction biases) are no parameters[/dim]")


def _show_kinds(console: Console, facts: Mapping[str, Any]) -> None:
    """A row a kind: how many layers, parameters and FLOPs of one."""
    stacks = {entry["stack"] for entry in facts["kinds"]}
    made = table("kind", *(["stack"] if len(stacks) > 1 else []), *FIGURES, right=FIGURES)
    for entry in facts["kinds"]:
        name = plain(entry["kind"]) + (" [dim](shared)[/dim]" if entry["shares"] else "")
        made.add_row(
            name,
            *([plain(entry["stack"])] if len(stacks) > 1 else []),
            f"{entry['layers']:,}",
            f"{entry['parameters']:,}",
            "" if entry["active_parameters"] == entry["parameters"] else f"{entry['active_parameters']:,}",
            _flops(entry["forward_flops_per_token"]),
            _flops(entry["attention_flops_per_token"]),
        )
    print_table(console, made, "Kinds of layers; FLOPs of one, forward, per " + _unit(facts))


def _unit(facts: Mapping[str, Any]) -> str:
    return "sample" if facts["seq_len"] is None else "token"


def _flops(value: float) -> str:
    return f"{value:.4g}" if value else ""


def _show_order(console: Console, layers: Sequence[Mapping[str, Any]]) -> None:
    """The kinds in the order they run, equal ones in a row counted."""
    runs = [(kind, len(list(same))) for kind, same in groupby(layers, key=lambda layer: layer["kind"])]
    shown = ", ".join(
        f"{count} x {plain(kind)}" if count > 1 else plain(kind) for kind, count in runs[:MAX_RUNS]
    )
    rest = f", and {len(runs) - MAX_RUNS} more (--json)" if len(runs) > MAX_RUNS else ""
    console.print()
    console.print(f"[dim]order[/dim] {shown}{rest}")


def _show_assumed(console: Console, assumed: Sequence[Mapping[str, Any]]) -> None:
    """Keys that the config does not state; those that change the count first."""
    for changes, words in ((True, "assumed, changes the count:"), (False, "assumed:")):
        for each in assumed:
            if each["changes_parameters"] is changes:
                console.print(f"[dim]{words}[/dim] {plain(each['key'])} = {plain(each['value'])}")
