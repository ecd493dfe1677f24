"""A plan as people read it: status, memory by cause, time, runners-up, certificate, and what would help."""

from dataclasses import replace
from pathlib import Path

import pytest

from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answers import Certificate, PlanResult, Prediction, Relaxation, StageMemory
from planner.evaluation import evaluate
from planner.render import show_plan
from planner.render.console import bar
from planner.render.plan import differences
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve

CERTIFICATE = Certificate(
    objective="step_time",
    lower_bound_s=1.0,
    gap=0.0005,
    meshes_total=20,
    meshes_illegal={"world_size": 7, "heads": 2},
    meshes_out_of_memory=3,
    meshes_bounded=4,
    meshes_solved=4,
    meshes_open=0,
    space={"tp": [1, 2], "pp": [1, 2]},
    wall_s=1.5,
)


@pytest.fixture(scope="module")
def situation() -> Situation:
    """A small model on two nodes."""
    job = JobRequest(seq_len=2048, global_batch=64)
    return resolve(CatalogModel(name="llama-3.2-1b"), PresetCluster(name="dgx-h100", devices=16), job)


@pytest.fixture(scope="module")
def best(situation: Situation) -> Prediction:
    """One strategy with two stages."""
    return evaluate(situation, parse_strategy("tp=2,pp=2,mbs=1"))


def test_everything_that_the_answer_knows_is_shown(
    situation: Situation, best: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    other = evaluate(situation, parse_strategy("tp=4,pp=2,mbs=1"))
    show_plan(situation, PlanResult("optimal", best, (other,), CERTIFICATE), Path("plan.json"))
    out = capsys.readouterr().out
    for words in (
        "llama-3.2-1b on 16 devices of dgx-h100",
        "optimal, gap 0.050%",
        "TP2 PP2 DP4",
        "MFU",
        "weights",
        "optimizer",
        "compute",
        "tp 2 -> 4",
        "20 = 9 illegal + 3 out of memory + 4 bounded + 4 solved + 0 open",
        "world_size 7, heads 2",
        "planner check plan.json",
    ):
        assert words in out, words
    assert max(len(line) for line in out.splitlines()) <= 110


def test_an_infeasible_request_says_what_would_help(
    situation: Situation, capsys: pytest.CaptureFixture[str]
) -> None:
    change = Relaxation("devices=32", "twice the devices fit", 12.0)
    certificate = replace(CERTIFICATE, lower_bound_s=None, gap=None)
    result = PlanResult("infeasible", None, (), certificate, (change,), "stage 0 needs 93.1 GiB of 80")
    show_plan(situation, result, None)
    out = capsys.readouterr().out
    assert "infeasible" in out
    assert "stage 0 needs 93.1 GiB of 80" in out
    assert "devices=32: twice the devices fit (step 12.0 s)" in out
    assert "next:" not in out


def test_equal_stages_share_a_row(
    situation: Situation, best: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = StageMemory(0, ("dense[0:8]",), 2.0**30, 2.0**30, 2.0**30, {"weights": 2.0**30}, {})
    memory = replace(best.memory, stages=(stage, replace(stage, stage=1)))
    show_plan(situation, PlanResult("feasible", replace(best, memory=memory), (), CERTIFICATE), None)
    assert "0-1" in capsys.readouterr().out


def test_markup_in_names_is_shown_as_it_is(
    situation: Situation, best: Prediction, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = replace(situation, model=situation.model.model_copy(update={"name": "[red]x[/red]"}))
    show_plan(strange, PlanResult("feasible", best, (), CERTIFICATE), None)
    assert "[red]x[/red]" in capsys.readouterr().out


def test_keys_that_follow_from_others_are_not_named(situation: Situation, best: Prediction) -> None:
    other = evaluate(situation, parse_strategy("tp=1,pp=2,mbs=1"))
    assert differences(best, other) == "tp 2 -> 1, dp 4 -> 8, sp true -> false"
    assert differences(best, best) == "nothing"


@pytest.mark.parametrize(("share", "cells"), [(-1.0, 0), (0.0, 0), (0.5, 5), (1.0, 10), (7.0, 10)])
def test_a_bar_stays_inside_its_width(share: float, cells: int) -> None:
    assert len(bar(share, width=10).plain) == cells
