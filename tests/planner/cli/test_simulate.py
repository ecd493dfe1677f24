"""`planner simulate`: a plan file or options, one JSON object, a trace file, refusals."""

import json

STRATEGY = "pp=4,tp=2"


def test_a_plan_file_and_options_say_the_same(run, job, tmp_path):
    plan, trace = tmp_path / "plan.json", tmp_path / "trace.json"
    planned = run(f"plan {job} --pin pp=4 --pin tp=2 -o {plan} --json")
    assert planned.code == 0
    strategy = json.loads(planned.out)["best"]["strategy"]
    found = json.loads(run(f"simulate {plan} --trace {trace} --json").out)
    predicted = json.loads(run([*f"evaluate {job} --json --strategy".split(), text_of(strategy)]).out)
    assert found["step_s"] == found["makespan_s"] == predicted["step_s"]
    assert found["trace"] == str(trace)
    assert len(found["bubble_s"]) == len(found["in_flight_peak"]) == 4
    assert json.loads(trace.read_text())["otherData"]["step_s"] == found["step_s"]
    again = json.loads(run([*f"simulate {job} --json --strategy".split(), text_of(strategy)]).out)
    assert again == {key: value for key, value in found.items() if key != "trace"}


def test_the_timeline_fits_the_width(run, job):
    shown = run(f"simulate {job} --strategy {STRATEGY}").out
    assert max(len(line) for line in shown.splitlines()) <= 110
    assert "Timeline" in shown and "bubble" in shown


def test_refusals(run, job, tmp_path):
    assert run(f"simulate {job}").refused("no strategy given")
    assert run(f"simulate {job} --strategy tp=3").refused("illegal strategy")
    assert run(f"simulate {job} --strategy {STRATEGY} --trace -").refused("--trace -")
    nowhere = tmp_path / "no" / "trace.json"
    assert run(f"simulate {job} --strategy {STRATEGY} --trace {nowhere}").refused("trace", "--trace")


def text_of(strategy):
    return ",".join(f"{key}={str(value).lower()}" for key, value in strategy.items())
