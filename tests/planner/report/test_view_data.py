"""What the views draw is what evaluate, simulate and the mesh say; groups of ranks by hand."""

from collections.abc import Callable
from typing import Any

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.report import view_of
from planner.simulate import simulate
from planner.situation import Situation

Make = Callable[..., Situation]


def view(make_situation: Make, text: str, **job: Any) -> tuple[Situation, dict[str, Any]]:
    """A view of llama-3.1-8b on 32 devices in nodes of 8."""
    asked = {"seq_len": 4096, "global_batch": 64, **job}
    of = make_situation("llama-3.1-8b", "dgx-h100", 32, **asked)
    return of, view_of(of, parse_strategy(text))


def axis(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in found["grid"]["axes"] if each["axis"] == name)


def test_the_prediction_and_the_timeline_are_those_of_the_other_commands(make_situation: Make) -> None:
    of, found = view(make_situation, "tp=2,pp=4,vpp=2")
    prediction, simulation = (
        evaluate(of, parse_strategy("tp=2,pp=4,vpp=2")),
        simulate(of, parse_strategy("tp=2,pp=4,vpp=2")),
    )
    assert found["evaluation"] == prediction.to_json()
    assert found["timeline"]["step_s"] == simulation.step_s
    columns = found["timeline"]["columns"]
    # 4 ranks x 2 chunks x 16 micro-batches (64 / dp 4), forward and backward
    assert {len(column) for column in columns.values()} == {4 * 2 * 16 * 2}
    assert max(columns["end_s"]) == pytest.approx(simulation.pipeline_s, abs=1e-6)


def test_sizes_strides_and_tiers_of_the_axes(make_situation: Make) -> None:
    _, found = view(make_situation, "tp=2,cp=2,pp=4")
    # 32 devices = tp 2 (stride 1) x cp 2 (2) x dp 2 (4) x pp 4 (8): only pp leaves the node
    shown = {
        name: (axis(found, name)["size"], axis(found, name)["stride"]) for name in ("tp", "cp", "dp", "pp")
    }
    assert shown == {"tp": (2, 1), "cp": (2, 2), "dp": (2, 4), "pp": (4, 8)}
    assert [axis(found, name)["tier"] for name in ("tp", "cp", "dp", "pp")] == [0, 0, 0, 1]
    assert [len(axis(found, name)["sent_bytes"]) for name in ("tp", "pp")] == [4, 4]


def test_stages_hold_every_layer_once(make_situation: Make) -> None:
    _, found = view(make_situation, "pp=4,vpp=2,stages=3+4+4+5+4+4+4+4")
    chunks = [chunk for rank in found["grid"]["stages"] for chunk in rank]
    held = sorted(block for c in chunks for block in range(c["first"], c["first"] + c["blocks"]))
    assert held == list(range(32))
    # the second chunk of rank 1 is virtual stage 5: blocks 3+4+4+5+4 = 20 to 23
    assert found["grid"]["stages"][1][1] == {"stage": 5, "first": 20, "blocks": 4}


def test_long_timelines_keep_their_beginning(make_situation: Make) -> None:
    of, whole = view(make_situation, "pp=4")
    cut = view_of(of, parse_strategy("pp=4"), 10)
    assert cut["timeline"]["operations_total"] == len(whole["timeline"]["columns"]["rank"])
    assert cut["timeline"]["columns"]["start_s"] == whole["timeline"]["columns"]["start_s"][:10]


def test_causes_of_every_phase_sum_to_the_phase_and_of_the_peak_to_the_peak(make_situation: Make) -> None:
    for text, job in (
        ("tp=2,pp=4", {}),
        ("zero=3", {"engine": "fsdp2"}),
        ("pp=2,zero=1", {"engine": "torch"}),
    ):
        _, found = view(make_situation, text, **job)
        for stage in found["evaluation"]["memory"]["stages"]:
            for phase, causes in stage["by_phase_cause"].items():
                assert sum(causes.values()) == pytest.approx(stage["by_phase"][phase], rel=1e-12)
            highest = max(stage["by_phase"], key=lambda name: stage["by_phase"][name])
            assert stage["by_phase_cause"][highest] == stage["by_cause"]
            assert sum(stage["by_cause"].values()) == pytest.approx(stage["allocated_bytes"], rel=1e-12)


def test_a_vision_model_has_no_sequence(make_situation: Make) -> None:
    of = make_situation("resnet-50", "dgx-a100", 8, global_batch=256, engine="ddp", optimizer="sgd")
    found = view_of(of, parse_strategy("mbs=32"))
    assert found["question"]["seq_len"] is None
    assert found["evaluation"]["tokens_per_s_per_device"] is None


def test_experts_have_axes_of_their_own(make_situation: Make) -> None:
    of = make_situation("mixtral-8x7b", "dgx-h100", 32, seq_len=4096, global_batch=64)
    found = view_of(of, parse_strategy("ep=8,pp=2"))
    assert (axis(found, "ep")["size"], axis(found, "ep")["stride"]) == (8, 1)
    assert axis(found, "expert_dp")["size"] == 2
    assert axis(found, "ep")["sent_bytes"][0] > 0
