"""`planner explain`, `compare`, `probe` and `plan --from` end to end, from one plan file."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.job import JobRequest
from planner.make_plan import make_plan
from planner.plan_file import plan_document, write_plan
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.situation import resolve


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of the small job (llama-3.2-1b on 8 devices)."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    job = JobRequest(seq_len=2048, global_batch=32)
    of = resolve(CatalogModel(name="llama-3.2-1b"), PresetCluster(name="dgx-h100", devices=8), job)
    search = SearchRequest(top_k=2, pins={"cp": 1, "tp": "1..2", "vpp": 1})
    write_plan(path, plan_document(of, search, make_plan(of, search)))
    return path


def test_explain_answers_in_one_object_and_for_people(run: Any, plan_file: Path) -> None:
    told = run(f"explain {plan_file} --max-seconds 0 --json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert set(found) == {"plan", "facts", "summary", "faster", "stages", "axes", "runners_up", "sensitivity"}
    assert found["plan"]["strategy"]["tp"] <= 2
    assert len(found["runners_up"]) <= 2
    shown = run(f"explain {plan_file} --max-seconds 0")
    assert shown.code == 0
    assert "What binds each stage" in shown.out
    assert "What better hardware would buy" in shown.out


@pytest.mark.parametrize(
    ("asked", "verdict", "shown"),
    [("tp=3", "illegal", "rule world_size"), ("tp=4", "slower", "than the plan's")],
)
def test_why_not_is_an_answer_not_an_error(
    run: Any, plan_file: Path, asked: str, verdict: str, shown: str
) -> None:
    told = run(f"explain {plan_file} --against {asked} --max-seconds 5 --json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["against"]["verdict"] == verdict
    assert shown in " ".join(run(f"explain {plan_file} --against {asked} --max-seconds 5").out.split())


def test_a_plan_file_without_a_plan_is_explained_by_its_reason(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    job = "--model llama-3.1-8b --cluster dgx-h100:1 --seq-len 2048 --global-batch 8 --engine ddp"
    assert run(f"plan {job} -o {path} --json").code == 1
    told = run(f"explain {path} --json")
    assert told.code == 1
    assert json.loads(told.out)["status"] == "infeasible"
    shown = run(f"explain {path}")
    assert shown.code == 1
    assert "too much" in shown.out


def test_explain_refuses_what_is_no_strategy(run: Any, plan_file: Path) -> None:
    assert run(f"explain {plan_file} --against tpp=4").refused("tpp", "tp")
    assert run("explain no-such-plan.json").refused("no-such-plan.json")
    assert run("explain").refused("--model")


def test_compare_takes_files_and_strategies(run: Any, job: str, plan_file: Path) -> None:
    told = run(f"compare {plan_file} tp=2,mbs=2 --json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert set(found["difference"]) >= {"knobs", "step_s", "breakdown_s", "memory"}
    assert 0.0 <= found["probability_first_faster"] <= 1.0
    swapped = json.loads(run(f"compare tp=2,mbs=2 {plan_file} --json").out)
    assert swapped["difference"]["step_s"] == -found["difference"]["step_s"]
    shown = run(f"compare tp=2 tp=4 {job}")
    assert shown.code == 0
    assert "Knobs that differ" in shown.out
    assert run("compare tp=2 tp=4").refused("--model")


def test_a_probe_is_a_plan_file(run: Any, plan_file: Path, tmp_path: Path) -> None:
    probe = tmp_path / "probe.json"
    told = run(f"probe {plan_file} --devices 2 -o {probe} --json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["devices"] <= 2
    checked = json.loads(run(f"check {probe} --json").out)
    assert checked["step_s"] == pytest.approx(found["probe"]["step_s"])
    run_file = tmp_path / "run.json"
    peak = found["probe"]["memory"]["peak_allocated_bytes"]
    run_file.write_text(
        json.dumps({"measured": {"step_s": 2 * found["probe"]["step_s"], "peak_bytes": peak}})
    )
    carried = json.loads(run(f"probe {plan_file} --devices 2 --measured {run_file} --json").out)["carried"]
    assert carried["plan_step_s"] == pytest.approx(2 * found["plan"]["step_s"])
    assert "carry back" in run(f"probe {plan_file} --devices 2").out


def test_planning_again_keeps_the_batch(run: Any, plan_file: Path) -> None:
    told = run(f"plan --from {plan_file} --cluster dgx-h100:4 --pin mbs=1 --json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    assert found["replan"]["global_batch"] == 32
    assert found["replan"]["devices_used"] <= 4
    assert found["best"]["strategy"]["mbs"] == 1
    assert run(f"plan --from {plan_file} --cluster dgx-h100:4 --global-batch 8").refused("keeps it")
    assert run("plan --checkpoint same --model llama-3.2-1b --cluster dgx-h100:1").refused("--from")
    assert run("plan --max-tp 2 --pin tp=2 --model llama-3.2-1b --cluster dgx-h100:1").refused("--max-tp 2")
