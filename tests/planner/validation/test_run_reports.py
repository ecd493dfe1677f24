"""Reports of the executor's own runs as measured runs, and the one ratio of a device that has a profile."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cost_models.errors import BadInput
from cost_models.profiles import MEASURED_VARIABLE, ROOT_VARIABLE
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.cli.group import planner
from planner.evaluation import evaluate
from planner.plan_file import resolved_request
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.situation import resolve
from planner.validation.calibrate.reports import outcome_of_report, outcomes_of_reports

MEASURED = Path(__file__).parents[2] / "data" / "measured"


def report(batch: int, slower: float) -> dict[str, Any]:
    """What `planner run --json` says of a run that took `slower` times its prediction."""
    job = JobRequest(seq_len=2048, global_batch=batch, engine="torch")
    situation = resolve(CatalogModel(name="llama-3.2-1b"), PresetCluster(name="dgx-h200", devices=8), job)
    found = evaluate(situation, parse_strategy("dp=8,mbs=1,zero=0"))
    return {
        "request": resolved_request(situation, SearchRequest()).model_dump(mode="json"),
        "strategy": found.strategy.to_json(),
        "engine": found.engine,
        "world_size": 8,
        "measured": {"step_s": slower * found.step_s, "peak_bytes": found.memory.peak_allocated_bytes},
    }


def test_a_report_is_predicted_as_it_ran():
    outcome = outcome_of_report(report(16, 1.25), "ours")
    assert outcome.step_error == pytest.approx(1 / 1.25 - 1)
    assert outcome.memory_error == pytest.approx(0.0, abs=1e-6)
    assert not outcome.assumed


def test_reports_of_a_measured_device_move_the_rate_of_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    runs = tmp_path / "runs.jsonl"
    runs.write_text("".join(json.dumps(report(8 * n, 1.3)) + "\n" for n in range(2, 7)))
    ours = tmp_path / "ours"
    run = CliRunner().invoke(planner, ["calibrate", str(runs), "-o", str(ours), "--json"])
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert list(answer["ratios"]) == ["devices.h200-sxm.measured"]
    # every run takes 1.3 times its prediction, most of it kernels
    assert 0.65 < answer["ratios"]["devices.h200-sxm.measured"] < 0.85
    assert answer["errors"]["held_out_after"] < 0.3 * answer["errors"]["held_out_before"]
    slow = report(64, 1.3)
    monkeypatch.setenv(ROOT_VARIABLE, str(ours))
    again = outcome_of_report(slow, "again")
    assert abs(again.step_error or 1.0) < 0.06


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"measured": 1}', '{"request": {}, "strategy": {}, "measured": {}}']
)
def test_what_is_no_report_is_named(tmp_path: Path, content: str):
    path = tmp_path / "run.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=r"run\.json is no report of a run"):
        outcomes_of_reports(path)
