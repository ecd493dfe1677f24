"""docs/accuracy.md: how far predictions are from published runs, every number computed from the data."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.validation.calibrate import Calibration
from planner.validation.memory_page import memory_section
from planner.validation.report import ValidationReport
from planner.validation.step_page import step_section

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


FIGURES: Final = """## Figures

One a source: predicted against measured, the band is 10 % either way.
"""


def accuracy_page(
    report: ValidationReport, found: Calibration, tests: str = "", figures: Sequence[str] = ()
) -> str:
    """The page as Markdown; `tests` is the section on test runs, `figures` names the drawings in docs/figures."""
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
        step_section(report, found),
        memory_section(report),
        tests,
        FIGURES,
        *(f"![{name}](figures/{name}.svg)\n" for name in figures),
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


def _skipped(report: ValidationReport) -> str:
    reasons: dict[str, int] = {}
    for outcome in report.outcomes:
        if outcome.skipped:
            reasons[outcome.skipped] = reasons.get(outcome.skipped, 0) + 1
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(
        ("| rows | reason |", "|--:|---|", *(f"| {count} | {reason} |" for reason, count in ordered), "")
    )
