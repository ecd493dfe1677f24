"""planner profile and planner loop as people call them, with a profiler of the test's own."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cost_models.profiler.writer import write_profile
from cost_models.profiles import MEASURED_VARIABLE, read_profile
from planner.cli.group import planner
from planner.executor.profiled import run as profiled_run
from planner.executor.profiled import seen
from planner.executor.profiled.order import ProfileOrder
from planner.executor.profiled.run import parts_of
from planner.executor.profiled.seen import SeenDevice, cluster_of_device

EXAMPLE = next((Path(__file__).parents[2] / "data" / "measured" / "h200-sxm").iterdir())


def call(*arguments: str) -> Result:
    return CliRunner().invoke(planner, ["profile", *arguments])


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> list[ProfileOrder]:
    """A machine with one H200 that is measured at once."""
    given: list[ProfileOrder] = []

    def measured(order: ProfileOrder, output: Path | None, **more: Any) -> object:
        given.append(order)
        more["on_event"] and more["on_event"](
            {"event": "measured", "cases": 9, "done": 3, "spent_s": 1.0, "budget_s": 2.0, "processes": 1}
        )
        return read_profile(EXAMPLE)

    monkeypatch.setattr(profiled_run, "profile_device", measured)
    monkeypatch.setattr(seen, "seen_device", lambda: SeenDevice("h200-sxm", 1, "9.0"))
    return given


def test_a_profile_is_ordered_and_shown(orders: list[ProfileOrder]):
    shown = call("--minutes", "2")
    assert shown.exit_code == 0, shown.output
    assert "gemm" in shown.stdout
    assert "complete" in shown.stdout
    assert orders[0].budget_s == 120.0
    assert orders[0].precision == "bf16"
    answer = json.loads(call("--json", "--tolerance", "0.1").stdout)
    assert answer["device"] == "h200-sxm"
    assert answer["facts"]["context_bytes"] == 6e8
    assert {line["name"] for line in answer["coverage"]} >= {"gemm", "all_reduce", "norm:rms"}
    assert orders[1].tolerance == 0.1
    events = call("--json", "--progress", "jsonl")
    assert json.loads(events.stderr.splitlines()[0])["event"] == "measured"


def test_a_models_question_is_that_of_one_device(orders: list[ProfileOrder]):
    shown = call(
        "--model", "llama-3.2-1b", "--seq-len", "1024", "--micro-batches", "1,2", "--tp", "2", "--no-grid"
    )
    assert shown.exit_code == 0, shown.output
    model = orders[0].models[0]
    assert (model.micro_batches, model.tp) == ((1, 2), (2,))
    assert model.request.job.seq_len == 1024
    assert not orders[0].grid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--no-grid",), "give --model"),
        (("--micro-batches", "1,x"), "give whole numbers"),
        (("--tolerance", "2"), "--tolerance"),
        (("--model", "no-such-model"), "no-such-model"),
    ],
)
def test_bad_input_is_named(orders: list[ProfileOrder], arguments: tuple[str, ...], said: str):
    refused = call(*arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert not orders


def test_a_cluster_file_of_the_device_that_was_measured_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    target = tmp_path / "ours.toml"
    assert "no device was measured yet" in call("--device-file", str(target)).stderr
    profile = read_profile(EXAMPLE)
    manifest = profile.manifest.model_copy(update={"device": "nvidia-x1"})
    write_profile(tmp_path / "nvidia-x1" / EXAMPLE.name, manifest, profile.points)
    written = call("--device-file", str(target), "--devices", "4")
    assert written.exit_code == 0, written.output
    arguments = [
        "plan",
        "--model",
        "gpt2",
        "--cluster",
        str(target),
        "--seq-len",
        "512",
        "--global-batch",
        "16",
    ]
    plan = CliRunner().invoke(planner, [*arguments, "--json", "--max-seconds", "5"])
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.stdout)["best"]["provenance"]["measured_profile"].startswith("nvidia-x1/")
    assert "cannot be written" in call("--device-file", str(tmp_path / "no" / "x.toml")).stderr


def test_parts_of_a_profile():
    assert [part.processes for part in parts_of(0, 4, alone=False)] == [1, 4, 8]
    assert sum(part.share for part in parts_of(0, 4, alone=False)) == pytest.approx(1.0)
    assert [(part.processes, part.what) for part in parts_of(8, 4, alone=False)] == [
        (1, "kernels"),
        (8, "collectives"),
    ]
    assert [part.processes for part in parts_of(8, 4, alone=True)] == [1]
    assert [part.processes for part in parts_of(1, 4, alone=False)] == [1]


def test_a_device_outside_the_catalog_is_checked_as_one_of_its_kind():
    spec = cluster_of_device(SeenDevice("nvidia-x1", 1, "9.0"))
    assert isinstance(spec, dict)
    assert spec["spec"]["groups"][0]["device"] in ("h100-pcie", "h100-sxm-80gb", "h200-sxm", "h800-sxm")
    assert cluster_of_device(SeenDevice("cpu-x-2", 0, "")) == "cpu:1"
