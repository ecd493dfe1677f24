"""The section of docs/accuracy.md on runs that were looked up after the fit and never fitted to."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from planner.validation.predict import Outcome
from planner.validation.report import ValidationReport, within_interval

INTRO: Final = """## Runs never fitted to

`profiles/published/unseen.csv` holds public runs that no constant was fitted to and that were predicted when every
constant stood. What they showed of a *kind* was repaired (BERT's programs make logits of the masked positions alone);
no figure was tuned to one of them. Software is that of the nearest fitted generation, or of none.
"""


def unseen_section(report: ValidationReport) -> str:
    """The section as Markdown."""
    timed = [o for o in report.outcomes if o.step_error is not None]
    lines = [
        "| run | model | devices | precision, length | measured s | predicted s | error | 90 % interval |",
        "|---|---|---|---|--:|--:|--:|---|",
        *(_line(outcome) for outcome in timed),
    ]
    return "\n".join((INTRO, *lines, "", _summary(timed), ""))


def _line(outcome: Outcome) -> str:
    run, prediction = outcome.run, outcome.prediction
    measured, predicted = run.step_s, outcome.step_s
    if prediction is None or measured is None or predicted is None:
        return f"| {run.id} | not predicted: {outcome.skipped} | | | | | | |"
    wide = prediction.step_s_high / prediction.step_s - 1.0
    inside = prediction.step_s_low <= measured <= prediction.step_s_high
    return (
        f"| {run.id} | {run.text('model')} | {run.text('n_gpus')} {run.text('gpu')} | {run.text('precision')}, "
        f"{run.text('seq_len')} | {measured:.4g} | {predicted:.4g} | {100 * (predicted / measured - 1.0):+.1f} % | "
        f"{100 * wide:.0f} %, {'in' if inside else 'outside'} |"
    )


def _summary(timed: Sequence[Outcome]) -> str:
    errors = [abs(o.step_error) for o in timed if o.step_error is not None]
    share = within_interval(timed) or 0.0
    return (
        f"{len(errors)} runs: mean error {100 * fmean(errors):.1f} %, median {100 * median(errors):.1f} %, "
        f"{100 * share:.0f} % inside the 90 % interval.\n"
    )
