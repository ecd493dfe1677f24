"""How many devices: questions of real users, answered by the search for the fewest (tests/data/cases_sizing.json)."""

import json
from pathlib import Path

import pytest

from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.situation import changed

DATA = json.loads((Path(__file__).parents[2] / "data" / "cases_sizing.json").read_text(encoding="utf-8"))


@pytest.mark.matrix
@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"])
def test_the_fewest_devices_of_a_users_question(make_situation, case):
    asked = make_situation(case["model"], case["cluster"], 64, **case["job"])
    found = make_plan(asked, SearchRequest(objective="devices", top_k=0, pins=case["pins"]))
    expected, proof = case["expected"], found.certificate.proof
    assert found.status == "optimal"
    assert proof["value"] == proof["bound"] == found.changes["devices"]
    assert all(p["outcome"] == "does_not_fit" for p in proof["points"] if p["devices"] < proof["value"])
    if "fewest" in expected:
        assert proof["value"] == expected["fewest"]
    if "cheaper_without_pins_on" in expected:
        devices = expected["cheaper_without_pins_on"]
        free = make_plan(changed(asked, {"devices": devices}), SearchRequest(top_k=0))
        assert free.best.step_s * devices < found.best.step_s * proof["value"]
    if "at_most_by_rule_of_thumb" in expected:
        states = 18 * asked.counts.parameters
        assert proof["value"] <= -(-states // (0.75 * asked.cluster.device.capacity_bytes.value))
        assert proof["value"] * asked.cluster.device.capacity_bytes.value > 16 * asked.counts.parameters
