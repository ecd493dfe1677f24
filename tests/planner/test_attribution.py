"""What moved a number: the configuration, the planner, both, or nobody knows."""

from typing import Any

import pytest

from planner.attribution import Origin, cause_of_change, origin_of_baseline

NOW = Origin({"strategy.tp": 2, "job.seq_len": 4096}, {"planner_version": "2", "profiles_sha256": "b"})


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        (NOW, "unknown"),
        (Origin({}, {}), "unknown"),
        (Origin({"strategy.tp": 4, "job.seq_len": 4096}, NOW.stamp), "configuration (strategy.tp 4 -> 2)"),
        (
            Origin(NOW.configuration, {"planner_version": "1", "profiles_sha256": "b"}),
            "planner (planner_version)",
        ),
        (
            Origin({"strategy.tp": 4}, {"planner_version": "2", "profiles_sha256": "a"}),
            "configuration (strategy.tp 4 -> 2) and planner (profiles_sha256)",
        ),
    ],
)
def test_the_cause_is_named(before: Origin, cause: str) -> None:
    assert cause_of_change(before, NOW).startswith(cause)


def test_keys_that_only_one_side_knows_do_not_count() -> None:
    before = Origin({"strategy.tp": 2, "strategy.gone": 1}, NOW.stamp)
    assert cause_of_change(before, NOW).startswith("unknown")


def test_many_changes_are_cut_short() -> None:
    before = Origin({f"job.{i}": 0 for i in range(9)}, {})
    now = Origin({f"job.{i}": 1 for i in range(9)}, {})
    assert cause_of_change(before, now).endswith("and 5 more)")


def test_a_plan_file_names_its_configuration() -> None:
    best: dict[str, Any] = {"strategy": {"tp": 2}, "model": {"parameters": 7}}
    document = {"request": {"job": {"seq_len": 8}}, "made_with": {"planner_version": "1"}}
    origin = origin_of_baseline(document, best)
    assert origin.configuration == {"model.parameters": 7, "job.seq_len": 8, "strategy.tp": 2}
    assert origin.stamp == {"planner_version": "1"}
