"""The answer of validate: the contract's keys, errors by hand, and a table that never crashes."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.validation import validate_file
from planner.validation.calibrate import Calibration
from planner.validation.documents import accuracy_page
from planner.validation.predict import outcome_of
from planner.validation.ranking import Order, kendall_tau, named_orders, ranking, weak_scaling
from planner.validation.report import ValidationReport
from planner.validation.rows import Run, read_runs

ROWS = """id,model,model_json,kind,core,seq_len,gpu,n_gpus,gpus_per_node,framework,precision,tp,pp,dp,\
sequence_parallel,recompute,micro_batch,global_batch,zero_stage,step_time_s,peak_memory_gib,memory_kind,oom
a-1,m,models/llama3-8b.json,dense,yes,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,2,1,4,true,none,1,32,1,2.0,40,\
"torch max_memory_allocated, max over ranks",false
a-2,m,models/llama3-8b.json,dense,yes,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,4,1,2,true,none,1,32,1,2.2,,,false
a-3,m,models/llama3-8b.json,dense,yes,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,1,8,1,,none,1,32,1,3.0,,,false
b-1,m,models/llama3-8b.json,dense,no,4096,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,2,1,4,true,,1,32,1,2.0,,,false
b-2,m,models/llama3-8b.json,dense,no,131072,H100-SXM-80GB,8,8,Megatron-Bridge,bf16,2,1,4,true,none,4,32,1,,,,true
c-1,m,models/none.json,dense,no,x,?,many,8,none at all,bf99,2,1,4,true,none,1,32,1,2.0,,,false
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ValidationReport:
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text(ROWS)
    return validate_file(path)


def test_the_contracts_keys(report: ValidationReport):
    answer = report.to_json()
    assert set(answer["rows"][0]) >= {
        *("id", "predicted_step_s", "measured_step_s", "step_error", "counter", "rank", "predicted_bytes"),
        *("measured_bytes", "memory_error", "verdict", "oom", "assumed", "skipped"),
    }
    assert set(answer["summary"]) >= {
        *("step_mape", "step_median_ape", "memory_mape", "false_fits", "false_ooms", "at_risk", "skipped")
    }


def test_errors_are_signed_and_relative(report: ValidationReport):
    row = report.to_json()["rows"][0]
    assert row["step_error"] == pytest.approx(row["predicted_step_s"] / 2.0 - 1)
    assert row["measured_bytes"] == 40 * 1024**3
    assert row["memory_error"] == pytest.approx(row["predicted_bytes"] / (40 * 1024**3) - 1)


def test_assumed_rows_are_quoted_apart(report: ValidationReport):
    answer = report.to_json()
    assert answer["assumed"]["n"] == 1
    assert answer["by_source"]["a"]["n"] == 3
    assert answer["by_source"]["b"]["n"] == 1


def test_a_row_never_crashes_the_table(report: ValidationReport):
    rows = {row["id"]: row for row in report.to_json()["rows"]}
    assert rows["c-1"]["skipped"]
    assert rows["c-1"]["step_error"] is None
    assert report.to_json()["summary"]["skipped"] == 1


def test_a_failed_run_is_a_verdict_not_an_error(report: ValidationReport):
    row = next(row for row in report.to_json()["rows"] if row["id"] == "b-2")
    assert row["verdict"] == "does_not_fit"
    assert row["step_error"] is None
    assert report.to_json()["summary"]["false_fits"] == 0


def test_kendall_tau_by_hand():
    # pairs of (1,1) (2,3) (3,2): two agree, one differs: (2 - 1) / 3
    assert kendall_tau([(1, 1), (2, 3), (3, 2)]) == pytest.approx(1 / 3)
    # 3 and 3.05 differ by less than 3 %: of the other two pairs both are in order
    near = [(1.0, 1.0), (3.0, 3.0), (2.0, 3.05)]
    assert (kendall_tau(near), kendall_tau(near, 0.03)) == (pytest.approx(1 / 3), 1.0)
    assert kendall_tau([(1.0, 1.0), (2.0, 1.01)], 0.03) is None
    assert kendall_tau([(1, 1), (1, 2)]) is None


def test_ranking_needs_three_layouts_of_one_question(report: ValidationReport):
    found = ranking(report.stated())
    assert found["groups"] == 1
    assert found["regret"] >= 0


def renamed(report: ValidationReport, **cells: str):
    """The stated rows of source a under other cells."""
    return [
        replace(
            o, run=replace(o.run, cells={**o.run.cells, **cells, "id": f"{cells['source']}-{o.run.id[2:]}"})
        )
        for o in report.stated()
        if o.run.source == "a"
    ]


def test_a_named_comparison_is_by_seconds_a_sample(report: ValidationReport):
    rows = renamed(report, source="bskill", model="llama3-70b", n_gpus="32")
    # measured 2.0, 2.2 and 3.0 s for 32 samples; of 64 samples in 4.2 s each takes 0.0656 s, the second least
    rows[1] = replace(rows[1], run=replace(rows[1].run, cells={**rows[1].run.cells, "global_batch": "64"}))
    (orders,) = named_orders(rows).values()
    (order,) = orders
    assert isinstance(order, Order)
    assert order.layouts == 3
    assert order.regret >= 0.0


def test_weak_scaling_needs_three_sizes_of_one_layout(report: ValidationReport):
    first = renamed(report, source="a")[0]
    rows = [
        replace(
            first,
            run=replace(
                first.run,
                cells={**first.run.cells, "n_gpus": n, "global_batch": str(4 * int(n)), "step_time_s": s},
            ),
        )
        for n, s in (("8", "2.0"), ("16", "2.05"), ("32", "2.1"))
    ]
    (series,) = weak_scaling(rows)
    # the predictions are one and the same; measured 2.1 / 2.0 - 1
    assert (series.fewest, series.most, series.predicted) == (8, 32, 0.0)
    assert series.measured == pytest.approx(0.05)
    assert weak_scaling(rows[:2]) == ()


def test_the_smaller_last_micro_batch_shortens_the_step(tmp_path: Path):
    path = tmp_path / "runs.csv"
    path.write_text(ROWS)
    outcome = outcome_of(read_runs(path)[0])
    assert outcome.case and outcome.step_s
    half = replace(outcome, case=replace(outcome.case, stretch=0.5))
    assert half.step_s == pytest.approx(outcome.step_s / 2)


def test_the_page_has_every_source(report: ValidationReport):
    page = accuracy_page(report, Calibration((), ()))
    assert "| a | 3 |" in page
    assert "## Skipped rows" in page


def test_an_empty_row_is_skipped():
    assert outcome_of(Run({}, Path())).skipped
