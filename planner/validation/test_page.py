"""The section of docs/accuracy.md on Megatron-Core's own test runs, every number computed."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.validation.report import ValidationReport
from planner.validation.routing import RoutingFit
from planner.validation.test_scores import tests_json

HEAD: Final = """## Megatron-Core's test runs

[`profiles/published/megatron_ci.json`](../profiles/published/README.md) holds runs of Megatron-Core's own tests with
their exact arguments and the peak of allocated bytes on the last rank. A run is inside the bound where prediction and
peak differ by at most {relative:.0f} % or {mib:.0f} MiB; a test's error is the median over its runs, in units of the
bound. {inside} of {tests} tests are inside. Runs of {differ} tests, {differ_inside} of them inside, differ among
themselves by more than twice the bound, with equal arguments; of the {agreeing} others {agreeing_inside} are inside.
"""

FIT: Final = """One number was fitted to them: expert ranks at their fullest micro-batch get {value:g} times the mean
(`profiles/published/megatron_ci.toml`). With each mixture test left out of the fit in turn the number is {values},
and {inside} of {tests} mixture tests are inside.
"""


def test_section(report: ValidationReport, fit: RoutingFit) -> str:
    """The section as Markdown."""
    found: Any = tests_json(report.outcomes)
    bound = found["bound"]
    head = HEAD.format(
        relative=100 * bound["relative"],
        mib=bound["bytes"] / 2**20,
        inside=found["inside"],
        tests=found["tests"],
        differ=found["runs_differ"],
        differ_inside=found["runs_differ_inside"],
        agreeing=found["tests"] - found["runs_differ"],
        agreeing_inside=found["inside"] - found["runs_differ_inside"],
    )
    values = " or ".join(f"{value:g}" for value in fit.values)
    fitted = FIT.format(value=fit.value, values=values, inside=fit.inside, tests=len(fit.left_out))
    return "\n".join(
        (
            head,
            _groups(found["by_group"]),
            fitted,
            _worst(found["worst"]),
            _unscored(found["runs_not_scored"]),
        )
    )


def _groups(groups: Mapping[str, Mapping[str, int]]) -> str:
    lines = ["| tests of | tests | inside |", "|---|--:|--:|"]
    lines += [f"| {group} | {found['tests']} | {found['inside']} |" for group, found in groups.items()]
    return "\n".join((*lines, ""))


def _worst(worst: Sequence[Mapping[str, Any]]) -> str:
    """The tests that are furthest off; the reason is read off their runs."""
    lines = [
        "| furthest off | runs | predicted GiB | measured GiB | bounds | where |",
        "|---|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {each['test']} | {each['runs']} | {each['predicted_gib']:.2f} | {each['measured_gib']:.2f} | "
        f"{each['error_in_bounds']:.2f} | {each['reason']} |"
        for each in worst
    ]
    return "\n".join((*lines, ""))


def _unscored(reasons: Mapping[str, int]) -> str:
    lines = ["| runs not scored | reason |", "|--:|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in reasons.items()]
    return "\n".join((*lines, ""))
