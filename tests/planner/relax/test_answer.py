"""What an infeasible request is told: the arithmetic, the changes by kind, and all of it in time."""

import time

import pytest

from planner.make_plan import make_plan
from planner.relax import leanest
from planner.relax.answer import KINDS
from planner.request import SearchRequest


def test_changes_are_ordered_by_what_they_cost_and_name_the_peak_they_lead_to(make_situation):
    # ddp keeps 20 bytes and more a parameter: 8.03e9 x 20 B = 150 GiB of 79, whatever the number of devices.
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64, engine="ddp")
    result = make_plan(of, SearchRequest())
    costs = [KINDS.index(relaxation.cost) for relaxation in result.relaxations]
    assert costs == sorted(costs)
    by_change = {relaxation.change: relaxation for relaxation in result.relaxations}
    assert "engine=fsdp2" in by_change
    assert "job.trainable=lora:r=16" in by_change
    assert not any(change.startswith("devices") for change in by_change)
    assert "with engine=fsdp2 it is" in result.reason
    assert by_change["engine=fsdp2"].used_bytes < 80e9


def test_a_pin_that_nothing_fits_under_is_named(make_situation):
    # 6 B a parameter of 8.03e9 are 45 GiB; 34 s h L bytes of 8,192 tokens without recompute are 34 GiB more.
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64)
    pins = {"tp": 1, "pp": 1, "cp": 1, "recompute": "none", "offload": "none"}
    result = make_plan(of, SearchRequest(pins=pins))
    assert result.status == "infeasible"
    named = [relaxation.change for relaxation in result.relaxations]
    assert "without pin recompute=none" in named
    assert "activations" in result.reason


@pytest.mark.parametrize("left_s", [-1.0, 0.2])
def test_a_deadline_leaves_the_arithmetic(make_situation, left_s):
    of = make_situation("llama-3.1-405b", "dgx-h100", 8, seq_len=8192, global_batch=64)
    found = leanest(of, SearchRequest(pins={"offload": "none"}), time.monotonic() + left_s)
    assert found is not None
    assert found.verdict == "does_not_fit"
    # 405.9e9 parameters of at least 2 + 4 + 12 bytes over 8 devices: 405.9e9 x 18 / 8 = 913e9.
    assert found.memory.device_used_bytes > 8e11
