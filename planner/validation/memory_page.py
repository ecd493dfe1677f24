"""The section of docs/accuracy.md on memory, every number computed."""

from collections.abc import Sequence
from typing import Any, Final

from cost_models.device_memory import ALLOCATORS
from cost_models.units import GIB
from planner.validation.memory_fit import (
    LeftOut,
    best_risk,
    best_slack,
    risk_left_out,
    slack_left_out,
)
from planner.validation.memory_scores import errors_json, risk_json
from planner.validation.predict import Outcome
from planner.validation.ranking import grouped
from planner.validation.reasons import reason
from planner.validation.report import ValidationReport

HEAD: Final = """## Memory

A figure is compared with the prediction of the same counter on the same rank. *kept* is what the allocator held where
a source prints it beside the allocated peak. Rows whose source leaves a knob out are not in these tables.
"""

RANKS: Final = """Two sources do not say which rank they read. nvidia-smi without a rank is read on the first
node, where a run is started: tr3m-1B3's figures do not grow with the logits that the last stage holds. Megatron-Bridge
logs one line a pipeline stage; its figures are read as the last rank's, as they grow with virtual stages.
"""

RISK: Final = """Needed are (1 + held) x allocated bytes and those outside torch; P(out of memory) is the chance that
they exceed what is usable. The Brier score is the mean of (probability - what happened) squared: 0 is right and sure.
"""

COUNTERS: Final = {
    "allocated": "allocated",
    "reserved": "reserved",
    "device_used": "nvidia-smi",
    "kept": "kept (reserved beside allocated)",
}
LISTED: Final = 10


def memory_section(report: ValidationReport) -> str:
    """The section as Markdown."""
    stated = report.stated()
    parts = (
        *(HEAD, _counters(stated), RANKS),
        *("### Does it fit?\n", RISK, _verdicts(stated), _wrong(stated)),
        *("### Furthest off in memory\n", _worst(stated)),
        *("### Fitted constants of memory\n", _constants(stated)),
    )
    return "\n".join(parts)


def _counters(stated: Sequence[Outcome]) -> str:
    lines = [
        "| source | counter | rows | mean error | signed median | worst |",
        "|---|---|--:|--:|--:|--:|",
    ]
    everywhere: dict[str, list[float]] = {}
    for source, rows in grouped(stated, lambda o: o.run.source).items():
        errors: dict[str, list[float]] = {}
        for outcome in rows:
            if outcome.memory_error is not None and outcome.run.counter:
                errors.setdefault(outcome.run.counter, []).append(outcome.memory_error)
            if outcome.reserved_error is not None:
                errors.setdefault("kept", []).append(outcome.reserved_error)
        for counter, found in sorted(errors.items()):
            everywhere.setdefault(counter, []).extend(found)
            lines.append(_error_line(source, counter, found))
    lines += [_error_line("all", counter, found) for counter, found in sorted(everywhere.items())]
    return "\n".join((*lines, ""))


def _error_line(source: str, counter: str, errors: Sequence[float]) -> str:
    found: Any = errors_json(errors)
    return (
        f"| {source} | {COUNTERS[counter]} | {found['n']} | {100 * found['mean_error']:.1f} % | "
        f"{100 * found['median_error']:+.1f} % | {100 * found['worst']:.1f} % |"
    )


def _verdicts(stated: Sequence[Outcome]) -> str:
    lines = [
        "| source | ran | of them at risk | of them does not fit | failed | of them fits | Brier |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    sources = {"all": list(stated)} | grouped(stated, lambda o: o.run.source)
    for source, rows in sources.items():
        found: Any = risk_json(rows)
        lines.append(
            f"| {source} | {found['ran']} | {found['ran_at_risk']} | {found['ran_does_not_fit']} | {found['failed']} | "
            f"{found['failed_fits']} | {found['brier']:.4f} |"
        )
    return "\n".join((*lines, ""))


def _wrong(stated: Sequence[Outcome]) -> str:
    """Failures predicted to fit and runs predicted to fail, each with its numbers."""
    lines = []
    for outcome in stated:
        prediction, failed = outcome.prediction, outcome.run.out_of_memory
        if prediction is None or prediction.verdict != ("fits" if failed else "does_not_fit"):
            continue
        memory = prediction.memory
        lines.append(
            f"- {outcome.run.id} {'failed' if failed else 'ran'} and is predicted "
            f"{prediction.verdict.replace('_', ' ')}: {memory.peak_allocated_bytes / GIB:.1f} GiB allocated of "
            f"{memory.capacity_bytes / GIB:.1f}, P(out of memory) {prediction.oom_probability:.1%}."
        )
    return "\n".join((*lines, "")) if lines else "Every verdict agrees with what happened.\n"


def _worst(stated: Sequence[Outcome]) -> str:
    known = [o for o in stated if o.memory_error is not None]
    known.sort(key=lambda o: (-abs(o.memory_error or 0.0), o.run.id))
    lines = ["| row | counter | predicted GiB | measured GiB | error | why |", "|---|---|--:|--:|--:|---|"]
    for outcome in known[:LISTED]:
        figures = (outcome.predicted_bytes or 0.0, outcome.run.memory_bytes or 0.0)
        cells = [f"{value / GIB:.1f}" for value in figures]
        cells.append(f"{100 * (outcome.memory_error or 0.0):+.1f} %")
        counter = COUNTERS[outcome.run.counter or ""]
        lines.append(f"| {outcome.run.id} | {counter} | {' | '.join(cells)} | {reason(outcome, known)} |")
    return "\n".join((*lines, ""))


SLACK: Final = "(reserved - allocated) / allocated"
CONSTANTS: Final = (
    ("slack, contiguous buffers", "slack", True, f"{SLACK}, engine megatron", "rows that print both"),
    ("slack, other engines", "slack", False, f"{SLACK}, all other engines", "nvidia-smi and reserved rows"),
    ("held", "held", False, "slack that a full device cannot give back", "what ran and what failed"),
    ("sigma", "sigma", False, "standard deviation of needed bytes, relative", "what ran and what failed"),
)

FREE: Final = """On a grid of 0.01 the least errors are at slack {0:g} and {1:g}, and what happened is likeliest at
held {2:g} and sigma {3:g}; the values above are chosen near them, so that no run that ran is `does_not_fit`. With
expandable segments slack {4:g} and {5:g}, held {6:g} and sigma {7:g} are assumed. Fitted without one source:
"""


def _constants(stated: Sequence[Outcome]) -> str:
    lines = ["| constant | value | unit | meaning | data |", "|---|--:|---|---|---|"]
    for name, field, kind, meaning, data in CONSTANTS:
        value = getattr(ALLOCATORS[kind, False], field)
        lines.append(f"| {name} | {value:g} | ratio | {meaning} | {data} |")
    slacks = [s for kind in (True, False) if (s := best_slack(stated, contiguous=kind)) is not None]
    if len(slacks) < len((True, False)):  # a table without such counters
        return "\n".join((*lines, ""))
    static, moving = ALLOCATORS[True, True], ALLOCATORS[False, True]
    assumed = (static.slack, moving.slack, moving.held, moving.sigma)
    return "\n".join((*lines, "", FREE.format(*slacks, *best_risk(stated), *assumed), _left_out(stated)))


def _left_out(stated: Sequence[Outcome]) -> str:
    lines = ["| source left out | rows | fitted without it | its score |", "|---|--:|---|--:|"]
    for kind, name in ((True, "contiguous buffers"), (False, "other engines")):
        for found in slack_left_out(stated, contiguous=kind):
            lines.append(
                _left_line(found, f"slack, {name}, {found.fitted[0]:g}", f"{100 * found.score:.1f} %")
            )
    for found in risk_left_out(stated):
        words = f"held {found.fitted[0]:g}, sigma {found.fitted[1]:g}"
        lines.append(_left_line(found, words, f"Brier {found.score:.4f}"))
    return "\n".join((*lines, ""))


def _left_line(found: LeftOut, fitted: str, score: str) -> str:
    return f"| {found.source} | {found.rows} | {fitted} | {score} |"
