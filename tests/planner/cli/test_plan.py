"""`planner plan` end to end: contract JSON, the plan file, progress, and answers of no."""

import json
from pathlib import Path
from typing import Any

import pytest

CERTIFICATE_KEYS = {
    "objective",
    "lower_bound_s",
    "gap",
    "meshes_total",
    "meshes_illegal",
    "meshes_out_of_memory",
    "meshes_bounded",
    "meshes_solved",
    "meshes_open",
    "space",
    "wall_s",
}


def plan_of(run: Any, arguments: str, code: int = 0) -> dict[str, Any]:
    """The JSON of a plan."""
    outcome = run(f"plan {arguments} --json")
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def test_the_answer_is_the_contract(run: Any, job: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    found = plan_of(run, f"{job} --top-k 2 -o {path}")
    assert set(found) >= {"status", "best", "alternatives", "certificate", "relaxations"}
    assert found["status"] == "optimal"
    certificate = found["certificate"]
    assert set(certificate) == CERTIFICATE_KEYS
    assert certificate["lower_bound_s"] <= found["best"]["step_s"]
    assert certificate["gap"] <= 1e-3
    counted = ("meshes_out_of_memory", "meshes_bounded", "meshes_solved", "meshes_open")
    illegal = sum(certificate["meshes_illegal"].values())
    assert certificate["meshes_total"] == illegal + sum(certificate[key] for key in counted)
    assert len(found["alternatives"]) <= 2
    assert json.loads(path.read_text(encoding="utf-8"))["result"]["best"] == found["best"]


def test_the_plan_is_what_evaluate_and_check_say(run: Any, job: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    best = plan_of(run, f"{job} -o {path}")["best"]
    strategy = tmp_path / "strategy.json"
    strategy.write_text(json.dumps(best["strategy"]), encoding="utf-8")
    evaluated = json.loads(run(f"evaluate {job} --strategy {strategy} --json").out)
    assert evaluated["step_s"] == best["step_s"]
    assert evaluated["memory"] == best["memory"]
    outcome = run(["check", str(path), "--baseline", str(path), "--json"])
    assert outcome.code == 0, outcome.err
    checked = json.loads(outcome.out)
    assert checked["step_s"] == best["step_s"]
    assert checked["regressions"] == []


def test_pins_and_bans_are_kept(run: Any, job: str) -> None:
    found = plan_of(run, f"{job} --pin tp=4 --ban recompute=full")
    assert found["best"]["strategy"]["tp"] == 4
    assert all(a["strategy"]["tp"] == 4 for a in found["alternatives"])


def test_progress_is_lines_of_json_with_bounds_that_never_worsen(run: Any, job: str) -> None:
    outcome = run(f"plan {job} --json --progress jsonl")
    events = [json.loads(line) for line in outcome.err.splitlines()]
    assert events
    bests = [event["best_step_s"] for event in events if event["best_step_s"] is not None]
    assert bests == sorted(bests, reverse=True)


def test_a_model_that_fits_nowhere_is_a_no_with_ways_out(run: Any) -> None:
    big = "--model llama-3.1-8b --cluster rtx-4090:1 --seq-len 1024 --global-batch 8 --max-seconds 2"
    found = plan_of(run, big, code=1)
    assert found["status"] == "infeasible"
    assert found["best"] is None
    assert found["reason"]
    assert found["relaxations"]


def test_seven_devices_and_a_batch_of_512_name_the_nearest_batch(run: Any) -> None:
    # Data parallelism alone: 512 = 73 * 7 + 1, so 511 is the nearest batch that 7 devices share.
    odd = "--model llama-3.2-1b --cluster dgx-h100:7 --seq-len 2048 --global-batch 512 --engine ddp"
    found = plan_of(run, odd, code=1)
    assert found["status"] == "infeasible"
    assert "511" in json.dumps(found["relaxations"])
    assert found["certificate"]["meshes_illegal"]["batch"] > 0


def test_a_plan_for_people(run: Any, job: str) -> None:
    outcome = run(f"plan {job}")
    assert outcome.code == 0
    for words in ("optimal", "Memory per pipeline stage", "Certificate", "next:"):
        assert words in outcome.out


@pytest.mark.parametrize("engine", ["torch", "fsdp2", "ddp"])
def test_every_engine_plans(run: Any, engine: str) -> None:
    small = "--model gpt2 --cluster dgx-a100:8 --seq-len 1024 --global-batch 64"
    assert plan_of(run, f"{small} --engine {engine}")["best"]["fits"] is True


@pytest.mark.parametrize("output", ["", ".", "..", "/", "no/such/folder/plan.json", "x" * 5000])
def test_a_place_that_cannot_be_written_is_refused_before_the_search(run: Any, job: str, output: str) -> None:
    outcome = run(["plan", *job.split(), "--json", "-o", output])
    assert outcome.refused("-o"), outcome
