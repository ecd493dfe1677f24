"""Questions from plan files and planner.yaml, and baselines."""

import json
from pathlib import Path
from typing import Any

import pytest

YAML = """\
model: llama-3.2-1b
cluster: dgx-h100:8
job:
  seq_len: 2048
  global_batch: 32
  options:
    engine.attention: unfused
strategy: tp=2,mbs=1
"""


@pytest.fixture
def yaml_file(tmp_path: Path) -> Path:
    """A complete planner.yaml."""
    path = tmp_path / "planner.yaml"
    path.write_text(YAML, encoding="utf-8")
    return path


def checked(run: Any, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The JSON of a check."""
    outcome = run(["check", *arguments, "--json"])
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_a_planner_yaml_is_the_same_question_as_options(run: Any, job: str, yaml_file: Path) -> None:
    options = [*job.split(), "--set", "engine.attention=unfused", "--strategy", "tp=2,mbs=1"]
    assert checked(run, str(yaml_file)) == checked(run, *options)


def test_options_win_over_the_file(run: Any, yaml_file: Path) -> None:
    found = checked(run, str(yaml_file), "--strategy", "tp=4", "--set", "engine.dropout=false")
    assert found["strategy"]["tp"] == 4
    assert found["options"]["engine.dropout"] is False
    assert found["options"]["engine.attention"] == "unfused"


def test_a_model_beside_the_file_is_found(run: Any, yaml_file: Path) -> None:
    config = json.loads(run("catalog models llama-3.2-1b --json").out)["config"]
    (yaml_file.parent / "mine.json").write_text(json.dumps(config), encoding="utf-8")
    yaml_file.write_text(YAML.replace("llama-3.2-1b", "mine.json"), encoding="utf-8")
    assert checked(run, str(yaml_file))["fits"] is True


def test_a_question_from_standard_input(run: Any) -> None:
    outcome = run("check - --json", stdin=YAML.encode())
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model: [\n", ("not YAML", "line 2")),
        ("- a\n- b\n", ("a list",)),
        ("modle: gpt2\n", ("did you mean model?",)),
        ("model: gpt2\nmodel: bert-base\n", ("twice", "line 2")),
        (YAML.replace("global_batch: 32", "global_batch: many"), ("job.global_batch",)),
        (YAML.replace("global_batch: 32", "global_batch: true"), ("job.global_batch",)),
        (YAML.replace("global_batch: 32", "global_batch: .nan"), ("job.global_batch",)),
        (YAML.replace("seq_len: 2048", "seq_length: 2048"), ("job.seq_length",)),
        (YAML.replace("tp=2,mbs=1", "{tp: 3}"), ("world_size",)),
        (YAML.replace("tp=2,mbs=1", "7"), ("strategy holds a int",)),
        ("model: !!python/object/apply:os.getcwd []\n", ("not YAML",)),
        ("job: 7\nmodel: gpt2\n", ("job holds a int",)),
        ("", ("empty",)),
    ],
)
def test_a_planner_yaml_that_cannot_be(run: Any, yaml_file: Path, text: str, words: tuple[str, ...]) -> None:
    yaml_file.write_text(text, encoding="utf-8")
    outcome = run(["check", str(yaml_file), "--json"])
    assert outcome.refused(*words), outcome


def test_no_regression_against_itself(run: Any, yaml_file: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(checked(run, str(yaml_file))), encoding="utf-8")
    assert (
        checked(run, str(yaml_file), "--baseline", str(baseline), "--max-slowdown", "0%")["regressions"] == []
    )


def test_a_slower_configuration_is_a_regression_of_the_configuration(
    run: Any, yaml_file: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.json"
    before = checked(run, str(yaml_file))
    baseline.write_text(json.dumps(before), encoding="utf-8")
    options = ("--strategy", "tp=2,mbs=1,recompute=full", "--baseline", str(baseline))
    (regression,) = checked(run, str(yaml_file), *options, code=1)["regressions"]
    assert regression["metric"] == "step_s"
    assert regression["cause"] == "configuration (strategy.recompute none -> full)"
    allowed = checked(run, str(yaml_file), *options, "--max-slowdown", "100%")
    assert allowed["regressions"] == []


def test_a_number_moved_by_a_newer_planner_says_so(run: Any, yaml_file: Path, tmp_path: Path) -> None:
    before = checked(run, str(yaml_file))
    before["step_s"] /= 2
    before["made_with"]["planner_version"] = "0.0.1"
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(before), encoding="utf-8")
    (regression,) = checked(run, str(yaml_file), "--baseline", str(baseline), code=1)["regressions"]
    assert regression["cause"] == "planner (planner_version)"


def test_a_verdict_that_became_worse_is_a_regression(run: Any, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text('{"step_s": 1000000.0, "verdict": "fits"}', encoding="utf-8")
    big = "--model llama-3.1-405b --cluster dgx-h100:8 --seq-len 8192 --global-batch 8 --strategy tp=8"
    found = checked(run, *big.split(), "--baseline", str(baseline), code=1)
    assert [r["metric"] for r in found["regressions"]] == ["verdict"]
    assert found["regressions"][0]["cause"].startswith("unknown")


@pytest.mark.parametrize(
    "content", ["{}", '{"step_s": 0, "verdict": "fits"}', '{"step_s": 1, "verdict": "maybe"}', "[]"]
)
def test_a_useless_baseline_is_refused(run: Any, yaml_file: Path, tmp_path: Path, content: str) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(content, encoding="utf-8")
    assert run(["check", str(yaml_file), "--baseline", str(baseline), "--json"]).refused("baseline")


@pytest.mark.parametrize("step", [10**400, 0, -1, 1e-320, True, "1", None])
def test_a_baseline_without_a_usable_step_is_refused(
    run: Any, yaml_file: Path, tmp_path: Path, step: object
) -> None:
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(checked(run, str(yaml_file)) | {"step_s": step}), encoding="utf-8")
    outcome = run(["check", str(yaml_file), "--baseline", str(baseline), "--json"])
    assert outcome.refused("baseline"), outcome


def test_an_echoed_strategy_is_itself_one(run: Any, job: str) -> None:
    """As JSON on the command line, the way `jq .best.strategy` prints it."""
    first = checked(run, *job.split(), "--strategy", "tp=2,mbs=1")
    assert checked(run, *job.split(), "--strategy", json.dumps(first["strategy"])) == first
    outcome = run(["check", *job.split(), "--strategy", '{"tp": 2,'])
    assert (outcome.code, outcome.out) == (2, "")
    assert "JSON" in outcome.err
