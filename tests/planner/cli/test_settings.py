"""`planner export` writes settings, and `evaluate` and `check` read them."""

import json

import pytest

STRATEGY = "tp=2,pp=2,recompute=selective"


def exported(run, job, tmp_path):
    outcome = run(f"export {job} --strategy {STRATEGY} --to megatron -o {tmp_path}/out --json")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_an_export_predicts_the_same_when_read_back(run, job, tmp_path):
    found = exported(run, job, tmp_path)
    assert found["losses"] == []
    assert found["written"] == [f"{tmp_path}/out/train.sh"]
    script = tmp_path / "out" / "train.sh"
    assert script.stat().st_mode & 0o100  # it can be run
    before = json.loads(run(f"evaluate {job} --strategy {STRATEGY} --json").out)
    answer = run(f"evaluate --settings {script} --cluster dgx-h100:8 --json")
    after = json.loads(answer.out)
    assert answer.code == 0
    assert (after["step_s"], after["memory"]) == (before["step_s"], before["memory"])
    assert after["settings"]["framework"] == "megatron"
    assert after["settings"]["unknown"] == []


def test_options_win_over_settings(run, job, tmp_path):
    exported(run, job, tmp_path)
    settings = f"--settings {tmp_path}/out/train.sh --format megatron --cluster dgx-h100:8"
    found = json.loads(
        run(f"check {settings} --global-batch 64 --set engine.fused_cross_entropy=true --json").out
    )
    assert found["configuration"]["job"]["global_batch"] == 64
    assert found["passed"] is True
    again = json.loads(run(f"evaluate {settings} --strategy recompute=full --json").out)
    assert (again["strategy"]["recompute"], again["strategy"]["tp"]) == ("full", 2)


def test_a_plan_file_is_exported(run, job, tmp_path):
    plan = tmp_path / "plan.json"
    assert run(f"plan {job} --max-seconds 5 --allow-at-risk -o {plan} --json").code == 0
    outcome = run(f"export {plan} --to megatron")
    assert outcome.code == 0, outcome.err
    assert json.loads(plan.read_text())["id"] in outcome.out
    assert "--tensor-model-parallel-size" in outcome.out


@pytest.mark.parametrize("command", ["export - --to megatron", "explain - --max-seconds 0", "check - --json"])
def test_a_plan_on_standard_input_is_read_once(run, job, tmp_path, command):
    plan = tmp_path / "plan.json"
    assert run(f"plan {job} --max-seconds 5 --pin tp=2 --allow-at-risk -o {plan} --json").code == 0
    outcome = run(command, stdin=plan.read_bytes())
    assert outcome.code == 0, outcome.err


def test_what_is_missing_is_asked_for(run, job, tmp_path):
    exported(run, job, tmp_path)
    settings = f"--settings {tmp_path}/out/train.sh"
    assert run(f"evaluate {settings}").refused("--cluster")
    assert run(f"evaluate {settings} --cluster dgx-h100:8 --format megatorn").refused("megatron")
    assert run(f"evaluate {job} --strategy tp=2 --format megatron").refused("--settings")
    assert run(f"evaluate {settings} --cluster dgx-h100:8 --model llama-3.1-8b").refused("32 layers", "16")
    assert run(f"export {job} --strategy tp=2 --to pytorch").refused("megatron")
    assert run("export --to megatron").refused("--model")
    note = tmp_path / "note.txt"
    note.write_text("nothing of the kind")
    assert run(f"evaluate --settings {note} --cluster dgx-h100:8").refused("--format")
