"""A measured step taken apart: traces by hand, reports by hand, and the command over both."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cost_models.errors import BadInput
from cost_models.specs.strategy import parse_strategy
from planner.answers import Prediction
from planner.cli.group import planner
from planner.evaluation import evaluate
from planner.explain.slower import from_report, from_traces
from planner.explain.trace import RankTime, rank_time, read_traces

JOB = {"seq_len": 64, "global_batch": 8, "precision": "fp32", "engine": "torch"}


def event(name: str, start_us: float, length_us: float, cat: str = "kernel", tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": start_us, "dur": length_us, "pid": 1, "tid": tid}


GPU = [
    event("ampere_gemm", 0, 100),
    event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 100, tid=2),  # 50 us beside the product, 50 shown
    event("ncclDevKernel_SendRecv", 150, 30, tid=2),
    event("elementwise", 200, 20),
    event("aten::mm", 0, 500, "cpu_op"),  # what the host does beside its kernels
    event("enumerate(DataLoader)#_SingleProcess.__next__", 180, 10, "cpu_op"),
]


def test_kernels_messages_data_and_idle_time_by_hand():
    # whole 220 us: products 120, all-reduce 50 shown, send 30, data 10, idle 10
    found = rank_time(GPU, 1, Path("t"))
    assert found.step_s == pytest.approx(220e-6)
    assert found.compute_s == pytest.approx(120e-6)
    assert found.messages == {"all_reduce": pytest.approx(50e-6), "send_receive": pytest.approx(30e-6)}
    assert found.hidden_s == pytest.approx(50e-6)
    assert (found.data_s, found.idle_s) == (pytest.approx(10e-6), pytest.approx(10e-6))
    parts = (found.compute_s, *found.messages.values(), found.data_s, found.idle_s)
    assert sum(parts) == pytest.approx(found.step_s)


def test_steps_are_given_or_marked():
    marks = [event(f"ProfilerStep#{n}", 0, 1, "user_annotation") for n in (3, 4)]
    assert rank_time([*GPU, *marks], None, Path("t")).step_s == pytest.approx(110e-6)
    assert rank_time(GPU, 4, Path("t")).step_s == pytest.approx(55e-6)


def test_on_a_processor_what_waits_for_a_message_computes_nothing():
    events = [
        event("autograd::engine", 0, 100, "cpu_op"),
        event("aten::mm", 10, 20, "cpu_op"),
        event("c10d::allreduce_", 30, 70, "cpu_op"),
        event("gloo:all_reduce", 32, 60, "cpu_op", tid=2),
    ]
    found = rank_time(events, 1, Path("t"))
    assert found.compute_s == pytest.approx(20e-6)
    assert found.messages == {"all_reduce": pytest.approx(60e-6)}


@pytest.fixture(scope="module")
def predictions(make_situation) -> dict[str, Prediction]:
    situation = make_situation("gpt2", "cpu", 4, **JOB)
    texts = ("tp=2,dp=2,mbs=2", "pp=4,mbs=2", "dp=4,mbs=2,zero=0")
    return {text: evaluate(situation, parse_strategy(text)) for text in texts}


def rank(compute: float, messages: dict[str, float], idle: float = 0.0) -> RankTime:
    return RankTime(compute + sum(messages.values()) + idle, compute, messages, 0.0, 0.0, idle)


def test_messages_go_to_their_axes_and_late_ranks_to_stragglers(predictions):
    of = predictions["dp=4,mbs=2,zero=0"]
    ranks = [rank(1.0, {"all_reduce": 0.9}), rank(1.4, {"all_reduce": 0.1})]
    found = {part.name: part for part in from_traces(of, ranks).parts}
    assert found["dp messages"].measured_s == pytest.approx(0.1)
    assert found["dp messages"].predicted_s == pytest.approx(of.breakdown_s["dp_communication"])
    # the slowest rank computes 1.4 s, the mean is 1.2
    assert found["stragglers"].measured_s == pytest.approx(0.2)
    assert found["compute"].measured_s == pytest.approx(1.2)
    both = {part.name for part in from_traces(predictions["tp=2,dp=2,mbs=2"], ranks).parts}
    assert "tp and dp messages" in both


def test_a_pipelines_receives_are_its_bubble(predictions):
    of = predictions["pp=4,mbs=2"]
    found = {part.name: part for part in from_traces(of, [rank(1.0, {"send_receive": 0.5})]).parts}
    assert found["pipeline bubble and waiting"].measured_s == pytest.approx(0.5)
    expected = of.breakdown_s["pp_bubble"] + of.breakdown_s["pp_communication"]
    assert found["pipeline bubble and waiting"].predicted_s == pytest.approx(expected)


def report(step_s: float, busy: list[float], profiles: list[dict[str, float]] | None) -> dict[str, Any]:
    curve = [{"step": n, "step_s": step_s, "processor_s": busy} for n in (1, 2, 3)]
    return {
        "measured": {"step_s": step_s},
        "curve": curve,
        "world_size": len(busy),
        "parts": {"time": {"by_rank": profiles} if profiles else None},
    }


def test_a_report_tells_waiting_from_computing(predictions):
    of = predictions["dp=4,mbs=2,zero=0"]
    found = from_report(of, report(2.0, [1.0, 1.0, 1.0, 1.4], None))
    parts = {part.name: part.measured_s for part in found.parts}
    assert parts["stragglers"] == pytest.approx(0.3)  # 1.4 beyond the mean of 1.1
    assert parts["messages, bubble and waiting"] == pytest.approx(0.6)
    assert any("not profiled" in note for note in found.notes)
    # profiled steps are scaled to the measured one: 1.5 + 0.5 of 2 s against 4 s
    profiled = from_report(of, report(2.0, [1.0], [{"communication_s": 1.0, "rest_s": 3.0}]))
    parts = {part.name: part.measured_s for part in profiled.parts}
    assert parts["messages, bubble and waiting"] == pytest.approx(0.5)
    assert parts["compute"] == pytest.approx(1.5)


def test_causes_are_told_largest_first(predictions):
    of = predictions["dp=4,mbs=2,zero=0"]
    slow = rank(3.0 * of.step_s, {"all_reduce": of.step_s}, 0.5 * of.step_s)
    found = from_traces(of, [slow])
    assert [cause.partition(":")[0] for cause in found.causes()][:2] == ["compute", "dp messages"]
    assert not found.within
    assert any("one rank's trace" in note for note in found.notes)


def test_the_command_takes_traces_and_reports(tmp_path: Path):
    options = ["--model", "gpt2", "--cluster", "cpu:2", "--seq-len", "64", "--global-batch", "8"]
    options += ["--precision", "fp32", "--engine", "torch", "--strategy", "dp=2,mbs=2"]
    (tmp_path / "trace_rank0.json").write_text(json.dumps({"traceEvents": GPU}))
    (tmp_path / "trace_rank1.json.gz").write_bytes(gzip.compress(json.dumps(GPU).encode()))
    assert len(read_traces(tmp_path, 1)) == 2
    run = CliRunner().invoke(planner, ["explain", *options, "--measured", str(tmp_path), "--json"])
    assert run.exit_code == 0, run.output
    answer = json.loads(run.stdout)
    assert {part["name"] for part in answer["parts"]} >= {"compute", "dp messages", "stragglers", "data"}
    shown = CliRunner().invoke(planner, ["explain", *options, "--measured", str(tmp_path)])
    assert "than predicted" in shown.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{}", "no report and no trace"),
        ("[1", "not valid JSON"),
        ('{"measured": {}, "curve": []}', "does not name its plan"),
    ],
)
def test_what_is_no_measured_run_is_bad_input(tmp_path: Path, content: str, said: str):
    path = tmp_path / "run.json"
    path.write_text(content)
    run = CliRunner().invoke(planner, ["explain", "--measured", str(path)])
    assert run.exit_code == 2
    assert said in run.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(BadInput, match="holds no trace"):
        read_traces(empty, None)
