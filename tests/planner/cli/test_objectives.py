"""`planner plan` with another objective, a run or a front: the answer, the plan file, what people read."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.job import JobRequest
from planner.make_plan import least_step_s
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.search.space.frontier import Frontier, Late
from planner.situation import resolve

SMALL = (
    "--model pythia-70m --cluster l4:2 --seq-len 2048 --global-batch 8 --top-k 0 --pin cp=1 --pin pp=1 "
    "--pin recompute=none --pin offload=none"
)


def test_a_cheaper_plan_on_fewer_devices_is_a_plan_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    outcome = run(f"plan {SMALL} --objective cost --tokens 1B --deadline 30d -o {path} --json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    proof, made = found["certificate"]["proof"], found["run"]
    assert proof["unit"] == "USD a run"
    assert proof["value"] == pytest.approx(made["cost_usd"])
    # The profile's price, 1.6688 USD an hour and device, for the hours of the run
    assert made["cost_usd"] == pytest.approx(1.6688 * found["changes"]["devices"] * made["days"] * 24)
    assert made["meets_deadline"] is True
    checked = json.loads(run(["check", str(path), "--json"]).out)
    assert checked["step_s"] == found["best"]["step_s"]
    request = json.loads(path.read_text(encoding="utf-8"))["request"]
    groups = request["cluster"]["spec"]["groups"]
    assert (
        sum(g["devices"] or g["nodes"] * g["devices_per_node"] for g in groups) == found["changes"]["devices"]
    )


def test_a_deadline_that_nothing_reaches_is_a_no(run: Any) -> None:
    outcome = run(f"plan {SMALL} --objective devices --tokens 1T --deadline 1h --json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["status"], found["best"]) == (1, "infeasible", None)
    assert "days" in found["reason"]
    assert {r["change"].partition("=")[0] for r in found["relaxations"]} == {"deadline", "devices"}


def test_a_front_with_its_plan_files_for_people(run: Any, tmp_path: Path) -> None:
    outcome = run(f"plan {SMALL} --pareto --plans {tmp_path / 'plans'} --tokens 1B --pin mbs=1")
    assert outcome.code == 0, outcome.err
    assert "Front of time, memory and devices" in outcome.out
    assert "The run" in outcome.out
    written = list((tmp_path / "plans").iterdir())
    assert written
    assert all(json.loads(path.read_text(encoding="utf-8"))["result"]["best"] for path in written)


def test_plans_of_a_front_need_a_front(run: Any, tmp_path: Path) -> None:
    assert run(f"plan {SMALL} --plans {tmp_path}").refused("--pareto")
    assert run(f"plan {SMALL} --deadline 30d").refused("--tokens")
    assert run(f"plan {SMALL} --deadline 30 --tokens 1B").refused("30d")


def test_free_devices_are_counted_in_hours(run: Any) -> None:
    outcome = run(f"plan {SMALL} --objective cost --price-per-device-hour 0 --json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["certificate"]["proof"]["unit"] == "device hours (no price known) a step"


def test_a_bound_that_time_cuts_short_stays_below_the_step(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobRequest(seq_len=2048, global_batch=8)
    of = resolve(CatalogModel(name="pythia-70m"), PresetCluster(name="l4", devices=2), job)
    search = SearchRequest(pins={"cp": 1, "pp": 1, "recompute": "none", "offload": "none"})
    whole_s = least_step_s(of, search)

    def late(*_: object) -> None:
        raise Late

    monkeypatch.setattr(Frontier, "bundles", late)
    assert 0.0 < least_step_s(of, search) <= whole_s
