"""The step-time half of docs/accuracy.md: errors in sample and left out, order of layouts, scaling, intervals."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final

from planner.validation.calibrate import Calibration, Left
from planner.validation.calibrate.fit import generation_key
from planner.validation.calibrate.noise import held
from planner.validation.calibrate.spread import unseen_held
from planner.validation.predict import Outcome
from planner.validation.ranking import NOISE, interval_half_width, named_orders, ranking, weak_scaling
from planner.validation.report import ValidationReport, within_interval

FLOOR: Final = "5 to 6 %"
"""Spread of equal configurations between releases of one source (profiles/published/README.md)."""

Key = Callable[[Left], str]


def step_section(report: ValidationReport, found: Calibration) -> str:
    """The section as Markdown."""
    stated = report.stated()
    parts = (
        "## Step time: in sample and left out\n",
        _intro(found),
        _errors("kind", found.rows, lambda left: left.case.run.text("kind", "dense")),
        _errors("source", found.rows, _source_key),
        "### Mixtures of experts, row by row\n",
        _mixtures(found),
        "## Order of layouts\n",
        _orders(stated),
        "## Weak scaling\n",
        scaling_table((*stated, *report.assumed())),
        "## Intervals\n",
        _intervals(stated),
        _held(found),
        "## Fitted constants\n",
        _constants(found),
    )
    return "\n".join(parts)


def _intro(found: Calibration) -> str:
    return (
        f"`make calibrate` fits to {len(found.rows)} core rows whose knobs are all stated, of {len(found.sources)} "
        "sources (docs/cost_model.md, Calibration). *In sample* is the error under constants fitted to all of them; "
        "*left out* under constants fitted without the row's whole source: where a source is the only one of a device "
        "or of a generation of software, nothing of that device or software is known then. One configuration measured "
        f"in different releases of one framework differs by {FLOOR}.\n"
    )


def _errors(label: str, rows: Sequence[Left], key: Key) -> str:
    titles = ("in sample: mean", "median", "90 % within", "left out: mean", "median", "90 % within", "signed")
    head = f"| {label} | rows | {' | '.join(titles)} |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    groups: dict[str, list[Left]] = {}
    for left in rows:
        groups.setdefault(key(left), []).append(left)
    for name, found in sorted(groups.items()):
        cells = [*_three([left.inside for left in found]), *_three([left.by_source for left in found])]
        signed = 100.0 * math.expm1(median(left.by_source for left in found))
        lines.append(f"| {name} | {len(found)} | " + " | ".join(cells) + f" | {signed:+.1f} % |")
    return "\n".join((*lines, ""))


def _three(errors: Sequence[float]) -> tuple[str, str, str]:
    """Mean, median and ninth decile of |predicted / measured - 1|."""
    sizes = sorted(abs(math.expm1(error)) for error in errors)
    ninth = sizes[math.ceil(0.9 * len(sizes)) - 1]
    return tuple(f"{100 * value:.1f} %" for value in (fmean(sizes), median(sizes), ninth))  # type: ignore[return-value]


def _source_key(left: Left) -> str:
    mark = " (alone)" if left.alone else ""
    return f"{left.case.run.source}, {left.case.architecture}, {left.case.run.text('kind', 'dense')}{mark}"


def _mixtures(found: Calibration) -> str:
    """Rows left out one by one where their generation has three or more on an architecture; else ratios to one."""
    groups: dict[tuple[str, str], list[Left]] = {}
    for left in found.rows:
        if left.case.situation.model.is_moe:
            groups.setdefault(generation_key(left.case), []).append(left)
    lines = [
        "| generation | architecture | rows | each row left out: mean | ratios to one row: mean |",
        "|---|---|--:|--:|--:|",
    ]
    every: list[float] = []
    for (generation, architecture), rows in sorted(groups.items()):
        by_row = [abs(math.expm1(left.by_row)) for left in rows if left.by_row is not None]
        ratios = [abs(math.expm1(left.inside - rows[0].inside)) for left in rows[1:]]
        every += by_row
        cells = (
            f"{100 * fmean(by_row):.1f} %" if by_row else "",
            f"{100 * fmean(ratios):.1f} %" if ratios else "",
        )
        lines.append(f"| {generation} | {architecture} | {len(rows)} | {cells[0]} | {cells[1]} |")
    mean = f"Mean over rows left out one by one: {100 * fmean(every):.1f} %.\n" if every else ""
    return "\n".join((*lines, "", mean))


def _orders(outcomes: Sequence[Outcome]) -> str:
    """Kendall's tau and regret of every named comparison, and of all questions."""
    lines = [
        "Seconds a sample, predicted against measured; regret is what the layout predicted fastest took over the",
        f"fastest. *Apart* is tau over the pairs whose measured times differ by more than {NOISE:.0%}, as one setting",
        "measured twice by its source does in the median.",
        "",
        "| comparison | layouts | Kendall tau | apart | regret |",
        "|---|--:|--:|--:|--:|",
    ]
    found: Any = ranking(outcomes)
    for name in named_orders(outcomes):
        values = found["named"][name]
        lines.append(_order(name, str(values["layouts"]), values))
    mean = found["named_mean"]
    lines.append(_order("mean of the comparisons", "", mean))
    lines.append(_order(f"all {found['groups']} questions of equal batch", "", found))
    return "\n".join((*lines, ""))


def _order(name: str, layouts: str, values: Mapping[str, Any]) -> str:
    taus = f"{_number(values['kendall_tau'])} | {_number(values['kendall_tau_apart'])}"
    return f"| {name} | {layouts} | {taus} | {_percent(values['regret'])} |"


def scaling_table(outcomes: Iterable[Outcome]) -> str:
    """Loss of speed per device of every series of one layout, predicted beside measured."""
    lines = ["| series | devices | measured loss | predicted loss | off, points |", "|---|--:|--:|--:|--:|"]
    series = weak_scaling(outcomes)
    for one in series:
        name = " ".join(one.name.split(" | ")[:4])
        off = 100 * (one.predicted - one.measured)
        lines.append(
            f"| {name} | {one.fewest} to {one.most} | {_signed(one.measured)} | {_signed(one.predicted)} | {off:+.1f} |"
        )
    inside = sum(abs(one.predicted - one.measured) <= 0.02 for one in series)
    return "\n".join((*lines, "", f"{inside} of {len(series)} series are within 2 points.\n"))


def _intervals(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| core rows, all knobs stated | rows | in 90 % interval | median half-width |",
        "|---|--:|--:|--:|",
    ]
    kinds: Mapping[str, Callable[[str], bool]] = {
        "dense": lambda kind: kind == "dense",
        "mixtures": lambda kind: "moe" in kind,
        "vision": lambda kind: kind == "cnn",
    }
    for name, of in kinds.items():
        rows = [o for o in outcomes if o.run.is_core and o.run.step_s and of(o.run.text("kind", "dense"))]
        if rows:
            lines.append(
                f"| {name} | {len(rows)} | {_percent(within_interval(rows))} | {_percent(interval_half_width(rows))} |"
            )
    return "\n".join((*lines, ""))


def _held(found: Calibration) -> str:
    """What intervals hold of errors that the constants have not seen."""
    lines = [
        "The same of fitted rows, each left out of the fit and of what sets the widths, and its whole source left out",
        "of both, when nothing of its software or device may be known (docs/cost_model.md, Calibration).",
        "",
        "| fitted rows | rows | row left out: inside | half-width | source left out: inside | half-width |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, kind in (("dense", "dense"), ("mixtures", "moe"), ("vision", "vision")):
        one = held(found, kind)
        if one:
            cells = (one.by_row, one.by_row_half, one.by_source, one.by_source_half)
            lines.append(f"| {name} | {one.rows} | {' | '.join(map(_percent, cells))} |")
    if found.unseen:
        share, half = unseen_held(found)
        lines += [
            "",
            f"Of {len(found.unseen)} runs never fitted to (below), each source left out of what widens new software",
            f"and architectures, {_percent(share)} are inside; median half-width {_percent(half)}.",
        ]
    return "\n".join((*lines, ""))


def _constants(found: Calibration) -> str:
    lines = [
        "A ratio multiplies a rate of the curves in `profiles/efficiency/`; the median and the standard deviation of",
        "its logarithm are what is expected before any run is seen.",
        "",
        "| constant | value | expected | standard deviations off |",
        "|---|--:|--:|--:|",
    ]
    for parameter, value in found.values:
        expected = parameter.expected
        before = f"{expected.median:g} (log sd {expected.log_sigma:g})"
        lines.append(f"| {parameter.name} | {parameter.of(value):.3g} | {before} | {value:+.2f} |")
    return "\n".join((*lines, ""))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %"
