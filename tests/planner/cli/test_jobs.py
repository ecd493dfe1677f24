"""A planner.yaml with many jobs, its baseline, and what moved a number."""

import json
from xml.etree import ElementTree

import pytest

FILE = """
cluster: dgx-h100:8
job:
  seq_len: 2048
  global_batch: 32
  options:
    engine.attention: flash
limits:
  max_slowdown: 5%
jobs:
  - name: small
    model: llama-3.2-1b
    strategy: tp=2
  - name: large
    model: llama-3.1-8b
    strategy: tp=2,recompute=full
    job:
      global_batch: 16
      options:
        engine.fused_cross_entropy: true
"""


@pytest.fixture
def jobs(tmp_path):
    path = tmp_path / "planner.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_every_job_is_answered(run, jobs):
    outcome = run(f"check {jobs} --json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["passed"] is True
    assert [job["name"] for job in found["jobs"]] == ["small", "large"]
    assert [job["configuration"]["job"]["global_batch"] for job in found["jobs"]] == [
        32,
        16,
    ]  # its own over the shared
    assert found["jobs"][0]["configuration"]["job"]["seq_len"] == 2048
    options = found["jobs"][1]["configuration"]["job"]["options"]  # key by key, too
    assert options["engine.attention"] == "flash"


def test_a_job_that_cannot_run_fails_and_stops_no_other(run, jobs):
    jobs.write_text(FILE.replace("strategy: tp=2\n", "strategy: tp=3\n"), encoding="utf-8")
    outcome = run(f"check {jobs} --json")
    found = json.loads(outcome.out)
    assert outcome.code == 1
    assert found["failed"] == ["small"]
    assert "not divisible by" in found["jobs"][0]["failures"][0]
    assert found["jobs"][1]["passed"] is True


def test_a_baseline_says_what_moved_a_number(run, jobs, tmp_path):
    written = run(f"baseline {jobs} --json")
    assert written.code == 0, written.err
    baseline = tmp_path / "planner-baseline.json"
    assert set(json.loads(baseline.read_text())["jobs"]) == {"small", "large"}
    assert json.loads(run(f"check {jobs} --baseline {baseline} --json").out)["passed"] is True
    jobs.write_text(FILE.replace("strategy: tp=2\n", "strategy: tp=2,recompute=full\n"), encoding="utf-8")
    outcome = run(f"check {jobs} --baseline {baseline} --json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["failed"]) == (1, ["small"])
    (regression,) = found["jobs"][0]["regressions"]
    assert regression["metric"] == "step_s"
    assert "configuration" in regression["cause"]
    assert "recompute" in regression["cause"]


def test_memory_growth_is_held_where_it_is_asked_for(run, jobs, tmp_path):
    assert run(f"baseline {jobs}").code == 0
    baseline = tmp_path / "planner-baseline.json"
    jobs.write_text(FILE.replace("strategy: tp=2\n", "strategy: tp=2,mbs=4\n"), encoding="utf-8")
    assert json.loads(run(f"check {jobs} --baseline {baseline} --json").out)["passed"] is True
    found = json.loads(run(f"check {jobs} --baseline {baseline} --max-memory-growth 10% --json").out)
    assert [each["metric"] for each in found["jobs"][0]["regressions"]] == ["device_used_bytes"]


def test_a_new_job_is_noted(run, jobs, tmp_path):
    assert run(f"baseline {jobs}").code == 0
    jobs.write_text(FILE.replace("name: large", "name: huge"), encoding="utf-8")
    found = json.loads(run(f"check {jobs} --baseline {tmp_path}/planner-baseline.json --json").out)
    assert any("no job huge" in warning for warning in found["jobs"][1]["warnings"])


def test_formats_of_a_ci(run, jobs):
    suite = ElementTree.fromstring(run(f"check {jobs} --output-format junit").out)
    assert suite.attrib["tests"] == "2"
    assert "| large | pass |" in run(f"check {jobs} --output-format markdown").out
    assert run(f"check {jobs} --output-format github").out.count("::notice") == 2
    assert json.loads(run(f"check {jobs} --output-format sarif").out)["version"] == "2.1.0"
    assert "all pass" in run(f"check {jobs}").out


def test_settings_of_a_framework_are_a_job(run, tmp_path):
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}}'
    )
    text = "settings: ds.json\nmodel: llama-3.2-1b\ncluster: dgx-h100:8\njob:\n  seq_len: 2048\n"
    (tmp_path / "planner.yaml").write_text(text)
    outcome = run(f"check {tmp_path}/planner.yaml --json")
    assert outcome.code == 0, outcome.err
    (job,) = json.loads(outcome.out)["jobs"]
    assert (job["strategy"]["zero"], job["strategy"]["mbs"]) == (2, 4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("jobs:", "job_list:"), ("job_list", "jobs")),
        (("name: large", "name: small"), ("small", "name of its own")),
        (("max_slowdown: 5%", "max_slowdown: fast"), ("max_slowdown", "5%")),
        (("max_slowdown", "max_slowness"), ("max_slowness", "max_slowdown")),
        (("    model: llama-3.1-8b", "    modle: llama-3.1-8b"), ("modle", "model")),
    ],
)
def test_what_is_wrong_with_the_file_is_named(run, jobs, change, words):
    jobs.write_text(FILE.replace(*change), encoding="utf-8")
    assert run(f"check {jobs} --json").refused(*words)


def test_a_baseline_needs_predictions(run, jobs, tmp_path):
    jobs.write_text(FILE.replace("strategy: tp=2\n", "strategy: tp=3\n"), encoding="utf-8")
    assert run(f"baseline {jobs}").refused("small")
    assert not (tmp_path / "planner-baseline.json").exists()
