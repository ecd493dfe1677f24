"""Each command answers its contract JSON, exit code, and something readable without --json."""

import json
from pathlib import Path
from typing import Any

import pytest

EVALUATE_KEYS = {
    "fits",
    "verdict",
    "oom_probability",
    "step_s",
    "step_s_low",
    "step_s_high",
    "tokens_per_s_per_device",
    "samples_per_s_per_device",
    "model_flops_per_s_per_device",
    "mfu",
    "breakdown_s",
    "recompute_s",
    "critical_stage",
    "memory",
    "strategy",
    "model",
    "provenance",
    "assumed",
    "warnings",
}


def answer_of(outcome: Any, code: int = 0) -> dict[str, Any]:
    """The one JSON object of an outcome, and nothing beside it."""
    assert outcome.code == code, outcome.err
    assert outcome.out.count("\n") == 1
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_evaluate_answers_the_contract(run: Any, job: str) -> None:
    found = answer_of(run(f"evaluate {job} --strategy tp=2,mbs=1 --json"))
    assert set(found) >= EVALUATE_KEYS
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_s"], rel=1e-9)
    assert found["strategy"]["dp"] == 4
    assert found["made_with"]["engine_versions"]["megatron"]


def test_evaluate_says_no_with_exit_1(run: Any) -> None:
    big = "--model llama-3.1-405b --cluster dgx-h100:8 --seq-len 8192 --global-batch 8"
    found = answer_of(run(f"evaluate {big} --strategy tp=8 --json"), code=1)
    assert found["fits"] is False
    assert found["verdict"] == "does_not_fit"


def test_evaluate_for_people(run: Any, job: str) -> None:
    outcome = run(f"evaluate {job} --strategy tp=2,pp=2")
    assert outcome.code == 0
    for words in ("llama-3.2-1b", "MFU", "Memory per pipeline stage", "Where the step's time goes"):
        assert words in outcome.out
    assert "\x1b" not in outcome.out


def test_check_answers_margin_and_regressions(run: Any, job: str) -> None:
    found = answer_of(run(f"check {job} --strategy tp=2 --json"))
    assert set(found) >= EVALUATE_KEYS
    assert found["margin_bytes"] == found["memory"]["margin_bytes"] > 0
    assert found["regressions"] == []


def test_check_holds_a_share_of_memory(run: Any, job: str) -> None:
    found = answer_of(run(f"check {job} --strategy tp=2 --max-memory-fraction 1% --json"), code=1)
    assert "at most 1.0%" in found["failures"][0]
    assert found["fits"] is True


def test_check_takes_a_strategy_from_a_file_and_from_standard_input(
    run: Any, job: str, tmp_path: Path
) -> None:
    file = tmp_path / "strategy.json"
    file.write_text('{"tp": 4, "recompute": "full"}', encoding="utf-8")
    from_file = answer_of(run(f"check {job} --strategy {file} --json"))
    piped = answer_of(run(f"check {job} --strategy - --json", stdin=b"tp=4,recompute=full\n"))
    assert from_file["strategy"] == piped["strategy"]
    assert from_file["strategy"]["tp"] == 4


def test_the_echoed_strategy_is_taken_back(run: Any, job: str) -> None:
    first = answer_of(run(f"evaluate {job} --strategy tp=2,pp=2,mbs=1 --json"))
    text = ",".join(f"{key}={str(value).lower()}" for key, value in first["strategy"].items())
    again = answer_of(run(f"evaluate {job} --strategy {text} --json"))
    assert again["strategy"] == first["strategy"]
    assert again["step_s"] == first["step_s"]


def test_a_model_from_standard_input_is_the_catalog_model(run: Any, job: str) -> None:
    named = answer_of(run("catalog models llama-3.2-1b --json"))
    piped = run("inspect --model - --json", stdin=json.dumps(named["config"]).encode())
    assert answer_of(piped)["parameters"] == named["parameters"]


def test_inspect_answers_the_contract(run: Any) -> None:
    found = answer_of(run("inspect --model deepseek-v3 --seq-len 4096 --json"))
    assert {"parameters", "trainable_parameters", "active_parameters", "embedding_parameters"} <= set(found)
    assert {"mtp_parameters", "layers", "forward_flops_per_token", "assumed"} <= set(found)
    # DeepSeek-V3 technical report: 671B parameters, 37B active.
    assert found["parameters"] == pytest.approx(671e9, rel=1e-3)
    assert found["layers"][0]["index"] == 0
    assert {"index", "kind", "parameters"} <= set(found["layers"][0])


def test_inspect_of_a_vision_model_counts_samples(run: Any) -> None:
    found = answer_of(run("inspect --model resnet-50 --json"))
    # He et al. 2016, Table 1: 25.6M parameters, 4.1 GFLOPs counted as multiply-adds (twice that in FLOPs).
    assert found["parameters"] == 25_557_032
    assert found["forward_flops_per_token"] == pytest.approx(2 * 4.1e9, rel=0.03)
    assert found["seq_len"] is None


@pytest.mark.parametrize("kind", ["devices", "clusters", "models", "engines"])
def test_catalog_lists_and_describes(run: Any, kind: str) -> None:
    entries = answer_of(run(f"catalog {kind} --json"))[kind]
    name = entries[0]["name"]
    assert answer_of(run(f"catalog {kind} {name} --json"))["name"] == name
    assert name in run(f"catalog {kind}").out
    assert name in run(f"catalog {kind} {name}").out


def test_options_are_echoed(run: Any, job: str) -> None:
    settings = "--set engine.attention=unfused --set job.moe_imbalance=1.5"
    found = answer_of(run(f"evaluate {job} {settings} --strategy tp=1 --json"))
    assert found["options"]["engine.attention"] == "unfused"
    assert found["options"]["job.moe_imbalance"] == 1.5


def test_version_and_help(run: Any) -> None:
    assert run("--version").out.startswith("planner ")
    for command in ("plan", "evaluate", "check", "inspect", "catalog", "validate"):
        assert command in run("--help").out
        assert run(f"{command} --help").code == 0
    assert run([]).code == 0


RUNS = Path(__file__).resolve().parents[3] / "profiles" / "published" / "runs.csv"


def test_validate_answers_a_row_a_run(run: Any, tmp_path: Path) -> None:
    few = tmp_path / "runs.csv"
    few.write_text("".join(RUNS.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), encoding="utf-8")
    found = answer_of(run(f"validate {few} --json"))
    assert len(found["rows"]) == 3
    assert {"id", "predicted_step_s", "measured_step_s", "step_error", "skipped"} <= set(found["rows"][0])
    assert {"step_mape", "false_fits", "false_ooms", "skipped"} <= set(found["summary"])
    assert "Predicted against measured" in run(f"validate {few}").out


def test_validate_reports_progress_as_lines_of_json(run: Any, tmp_path: Path) -> None:
    few = tmp_path / "runs.csv"
    few.write_text("".join(RUNS.read_text(encoding="utf-8").splitlines(keepends=True)[:3]), encoding="utf-8")
    outcome = run(f"validate {few} --json --progress jsonl")
    answer_of(outcome)
    assert [json.loads(line)["detail"]["done"] for line in outcome.err.splitlines()] == [1, 2]


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b"{}"])
def test_validate_refuses_what_is_no_table_of_runs(run: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert run(["validate", str(path), "--json"]).refused()
