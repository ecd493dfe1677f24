"""For other repositories' tests: a training configuration fits, or the test says what is short, where and why."""

from collections.abc import Mapping
from typing import Any, Unpack

from planner.checking import CheckReport, Limits
from planner.library import Cluster, JobKeys, Model, Strategy, check


def assert_fits(
    model: Model,
    cluster: Cluster,
    strategy: Strategy,
    limits: Limits | None = None,
    baseline: Mapping[str, Any] | None = None,
    **job: Unpack[JobKeys],
) -> CheckReport:
    """Raise AssertionError with every failure where `check` says no; the report where it says yes."""
    report = check(model, cluster, strategy, limits, baseline, **job)
    if not report.passed:
        raise AssertionError("; ".join(report.failures))
    return report
