"""docs/accuracy.md: how far predictions are from published runs, every number computed from the data."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.validation.calibrate import Fit, step_log_sigma
from planner.validation.report import ValidationReport

HEAD: Final = """# Accuracy

How far predictions are from published runs. This page is written by `make accuracy` from
[`profiles/published/runs.csv`](../profiles/published/README.md) and the profiles; no number in it is typed by hand.

A step error is predicted / measured - 1. A memory error compares the same counter (allocated, reserved or what
nvidia-smi shows) on the same rank. Rows whose source leaves a knob out are predicted under the framework's default,
quoted apart and never fitted to.
"""

COLUMNS: Final = (
    ("rows", "n"),
    ("step: mean", "step_mape"),
    ("median", "step_median_ape"),
    ("signed median", "step_median_error"),
    ("in 90 % interval", "within_interval"),
    ("memory: rows", "n_memory"),
    ("mean", "memory_mape"),
    ("signed median", "memory_median_error"),
    ("false fits", "false_fits"),
    ("false out-of-memory", "false_ooms"),
)
SIGNED: Final = frozenset({"step_median_error", "memory_median_error"})
COUNTS: Final = frozenset({"n", "n_memory", "false_fits", "false_ooms"})


def accuracy_page(report: ValidationReport, fits: Sequence[Fit], tests: str = "") -> str:
    """The page as Markdown; `tests` is the section on test runs."""
    answer: Any = report.to_json()
    assumed = {"all": answer["assumed"]} | answer["assumed"]["by_source"]
    parts = (
        HEAD,
        "## All knobs stated\n",
        _table("source", {"all": answer["summary"]} | answer["by_source"]),
        "## Core rows, all knobs stated\n",
        _table("kind", answer["core"]),
        "## A knob assumed\n",
        _table("source", assumed),
        "## Order of layouts\n",
        _ranking(answer["ranking"]),
        "## Fitted scales\n",
        _fits(fits),
        tests,
        "## Skipped rows\n",
        _skipped(report),
    )
    return "\n".join(parts)


def _table(label: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    head = f"| {label} | " + " | ".join(title for title, _ in COLUMNS) + " |"
    rule = "|---|" + "--:|" * len(COLUMNS)
    lines = [
        f"| {name} | " + " | ".join(_cell(key, values[key]) for _, key in COLUMNS) + " |"
        for name, values in rows.items()
    ]
    return "\n".join((head, rule, *lines, ""))


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key in COUNTS:
        return str(value)
    return f"{100 * value:+.1f} %" if key in SIGNED else f"{100 * value:.1f} %"


def _ranking(found: Mapping[str, Any]) -> str:
    if not found["groups"]:
        return "No question of the table has enough layouts.\n"
    return (
        f"In {found['groups']} questions with three or more layouts (same source, model, devices and batch) the mean "
        f"Kendall tau is {found['kendall_tau']:.2f}, and the layout predicted fastest took "
        f"{100 * found['regret']:.1f} % longer on average than the fastest measured one.\n"
    )


def _fits(fits: Sequence[Fit]) -> str:
    """Scales with the errors of sources that were left out of the fit."""
    head = "| architecture | scales | rows | source left out | its rows | signed median | median |"
    lines = [head, "|---|---|--:|---|--:|--:|--:|"]
    for fit in fits:
        about: Any = fit.to_json()
        scales = ", ".join(f"{name} {value:g}" for name, value in about["scale"].items())
        for source, held in about["held_out"].items():
            mark = " (alone: predicted without a fit)" if held["only_source_of_a_constant"] else ""
            signed, size = held["median_log_error"], held["median_absolute_log_error"]
            lines.append(
                f"| {fit.architecture} | {scales} | {fit.rows} | {source}{mark} | {held['n']} | "
                f"{signed:+.3f} | {size:.3f} |"
            )
    sigma = step_log_sigma(fits)
    text = (
        "Errors are log(predicted / measured) of core dense rows under scales fitted without their source. "
        + (
            f"A 90 % interval that covers 90 % of the sources not alone needs a log sigma of {sigma:.3f}."
            if sigma
            else ""
        )
    )
    return "\n".join((*lines, "", text, ""))


def _skipped(report: ValidationReport) -> str:
    reasons: dict[str, int] = {}
    for outcome in report.outcomes:
        if outcome.skipped:
            reasons[outcome.skipped] = reasons.get(outcome.skipped, 0) + 1
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(
        ("| rows | reason |", "|--:|---|", *(f"| {count} | {reason} |" for reason, count in ordered), "")
    )
