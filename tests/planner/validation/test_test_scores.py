"""Scores of Megatron-Core's own tests: one a test, what is not scored, and where a difference lies."""

import json

import pytest

from cost_models.units import GIB
from planner.validation import validate_file
from planner.validation.report import ValidationReport
from planner.validation.routing import RoutingFit
from planner.validation.test_page import test_section as section_of
from planner.validation.test_scores import test_scores as scores_of
from planner.validation.test_scores import unscored

ARGUMENTS = {
    "num-layers": "12",
    "hidden-size": "512",
    "num-attention-heads": "8",
    "micro-batch-size": "4",
    "global-batch-size": "32",
    "seq-length": "1024",
    "max-position-embeddings": "1024",
    "bf16": "true",
    "deterministic-mode": "true",
}
STATED = {"n_gpus": 8, "gpus_per_node": 8, "gpu": "A100-80GB"}


def _row(test: str, peak_gib: float, more: dict[str, str], **stated: object) -> dict[str, object]:
    return {
        "test": test,
        "platform": "dev_dgx_a100",
        "mem_max_allocated_bytes": int(peak_gib * GIB),
        "mem_allocated_bytes": int(1.1 * GIB),
        "args": ARGUMENTS | more,
        **stated,
    }


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ValidationReport:
    shards = {"use-distributed-optimizer": "true"}
    rows = [
        _row("gpt/near", 3.05, {}, **STATED),
        _row("gpt/far", 9.0, {}, **STATED),
        _row("gpt/far", 3.05, {}, **STATED),
        _row("gpt/far", 9.0, {}, **STATED),
        _row("gpt/unstated", 3.05, {}),
        _row("gpt/sharded", 3.05, shards),
        _row("gpt/sharded_1node", 3.05, shards),
        _row("vision/images", 3.05, {"img-h": "336"}, **STATED),
    ]
    path = tmp_path_factory.mktemp("tests") / "runs.json"
    path.write_text(json.dumps(rows))
    return validate_file(path)


def test_runs_whose_sharding_is_unknown_are_predicted_and_not_scored(report: ValidationReport):
    reasons = {o.run.text("test"): unscored(o) for o in report.outcomes}
    assert "number of GPUs is not stated" in str(reasons["gpt/sharded"])
    assert reasons["gpt/unstated"] is None
    assert reasons["gpt/sharded_1node"] is None
    assert "images" in str(reasons["vision/images"])


def test_the_error_is_the_median_over_runs_in_units_of_the_bound(report: ValidationReport):
    scores = {score.name: score for score in scores_of(report.outcomes)}
    assert set(scores) == {"gpt/near", "gpt/far", "gpt/unstated", "gpt/sharded_1node"}
    far = scores["gpt/far"]
    # two of three runs measure 9 GiB, whose bound is 0.36 GiB
    assert far.error_in_bounds == pytest.approx((9 * GIB - far.predicted_bytes) / (0.36 * GIB))
    assert not far.is_inside
    assert "3.05 to 9.00 GiB" in far.reason


def test_a_test_inside_says_where_the_rest_lies(report: ValidationReport):
    near = next(score for score in scores_of(report.outcomes) if score.name == "gpt/near")
    assert "between steps" in near.reason
    assert near.to_json()["inside"] == near.is_inside


def test_the_answer_counts_tests_by_group(report: ValidationReport):
    found = report.to_json()["tests"]
    assert isinstance(found, dict)
    assert found["tests"] == sum(group["tests"] for group in found["by_group"].values()) == 4
    assert list(found["by_group"]) == ["gpt"]
    assert found["worst"][0]["test"] == "gpt/far"


def test_equal_runs_share_a_prediction(report: ValidationReport):
    first, second, third = (o for o in report.outcomes if o.run.text("test") == "gpt/far")
    assert first.prediction is second.prediction is third.prediction
    assert second.run.memory_bytes != first.run.memory_bytes


def test_the_page_holds_counts_and_reasons(report: ValidationReport):
    page = section_of(report, RoutingFit(1.2, {"moe/a": (1.2, 0.5), "moe/b": (1.3, 1.5)}))
    assert "of 4 tests are inside" in page
    assert "is 1.2 or 1.3" in page
    assert "1 of 2 mixture tests" in page
    assert "| 1 | --img-h 336" in page
