"""The section of docs/accuracy.md on runs that were looked up after the fit and never fitted to."""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Final

from planner.validation.predict import Outcome
from planner.validation.ranking import grouped
from planner.validation.report import ValidationReport, step_errors, within_interval
from planner.validation.step_page import scaling_table

INTRO: Final = """## Runs never fitted to

`profiles/published/unseen.csv` holds public runs that no constant was fitted to and that were predicted when every
constant stood. What they showed of a *kind* was repaired, from readings of single kernels, datasheets and the settings
that a source states; no figure was tuned to one of them. How much wider intervals of software and architectures are
that no fitted run shows rests on them, a vote a source. Software is that of the nearest fitted generation, or of none.
A knob that a source leaves out was taken before the prediction, and is named in the last column.
"""

Label = Callable[[Outcome], str]


def unseen_section(report: ValidationReport) -> str:
    """The section as Markdown."""
    timed = [o for o in report.outcomes if o.step_error is not None]
    skipped = [o for o in report.outcomes if o.skipped]
    tables = [_groups(title, timed, label) for title, label in _GROUPINGS]
    lines = [
        "### Run by run",
        "",
        "| run | model | devices | precision, length | layout | measured s | predicted s | error | interval | taken |",
        "|---|---|---|---|---|--:|--:|--:|---|---|",
        *(_line(outcome) for outcome in timed),
        *(f"| {o.run.id} | not predicted: {o.skipped} | | | | | | | | |" for o in skipped),
    ]
    scaling = ("### Weak scaling of runs never fitted to\n", scaling_table(timed))
    return "\n".join((INTRO, _summary(timed), *tables, *scaling, *lines, ""))


def _summary(timed: Sequence[Outcome]) -> str:
    errors = [abs(error) for error in step_errors(timed)]
    share = within_interval(timed) or 0.0
    return (
        f"{len(errors)} runs: mean error {100 * fmean(errors):.1f} %, median {100 * median(errors):.1f} %, "
        f"{100 * share:.0f} % inside the 90 % interval.\n"
    )


def _groups(title: str, timed: Sequence[Outcome], label: Label) -> str:
    """Errors of one way to group the runs, as a table; a small group says little."""
    lines = [
        f"| {title} | runs | mean | median | signed median | half-width, median | inside |",
        "|---|--:|--:|--:|--:|--:|--:|",
        *(_group_line(name, rows) for name, rows in sorted(grouped(timed, label).items())),
    ]
    return "\n".join((*lines, ""))


def _group_line(name: str, rows: Sequence[Outcome]) -> str:
    errors = step_errors(rows)
    absolute = [abs(error) for error in errors]
    widths = [o.prediction.step_s_high / o.prediction.step_s - 1.0 for o in rows if o.prediction]
    return (
        f"| {name} | {len(rows)} | {100 * fmean(absolute):.1f} % | {100 * median(absolute):.1f} % | "
        f"{100 * median(errors):+.1f} % | {100 * median(widths):.0f} % | {100 * (within_interval(rows) or 0.0):.0f} % |"
    )


def _device(outcome: Outcome) -> str:
    """Architecture and device, as the catalog names them."""
    if outcome.case is None:
        return ""
    device = outcome.case.situation.cluster.device
    return f"{device.architecture}, {device.name}"


def _software(outcome: Outcome) -> str:
    """The framework, without its release."""
    name = outcome.run.text("framework")
    known = (part for part in _SOFTWARE if part in name)
    return next(known, name)


def _kind(outcome: Outcome) -> str:
    """Kind of model and precision of its products."""
    if outcome.case is None:
        return ""
    return f"{outcome.run.text('kind', 'dense')}, {outcome.case.situation.job.precision.value}"


def _source(outcome: Outcome) -> str:
    return outcome.run.source


_SOFTWARE: Final = (
    *("Megatron-Bridge", "Megatron-DeepSpeed", "Megatron-Core", "Megatron-LM 2021", "Megatron-LM", "Primus"),
    *("torchtitan", "PyTorch DDP", "TensorFlow 2", "FlashAttention"),
)
"""Frameworks whose releases or programs are counted together."""

_GROUPINGS: Final[tuple[tuple[str, Label], ...]] = (
    ("devices", _device),
    ("software", _software),
    ("kind, precision", _kind),
    ("source", _source),
)


def _line(outcome: Outcome) -> str:
    run, prediction = outcome.run, outcome.prediction
    measured, predicted = run.step_s, outcome.step_s
    if prediction is None or measured is None or predicted is None:
        return ""
    wide = prediction.step_s_high / prediction.step_s - 1.0
    inside = prediction.step_s_low <= measured <= prediction.step_s_high
    return (
        f"| {run.id} | {run.text('model')} | {run.text('n_gpus')} {run.text('gpu')} | {run.text('precision')}, "
        f"{run.text('seq_len')} | {_layout(outcome)} | {measured:.4g} | {predicted:.4g} | "
        f"{100 * (predicted / measured - 1.0):+.1f} % | {100 * wide:.0f} %, {'in' if inside else 'outside'} | "
        f"{'; '.join(outcome.assumed)} |"
    )


def _layout(outcome: Outcome) -> str:
    """Axes larger than one and the micro-batch."""
    run = outcome.run
    axes = [
        f"{axis}{run.text(axis)}" for axis in ("tp", "pp", "vpp", "cp", "ep") if run.text(axis, "1") != "1"
    ]
    return " ".join((*axes, f"mbs{run.text('micro_batch')}"))
