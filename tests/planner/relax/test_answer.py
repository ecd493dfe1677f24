"""What an infeasible request is told: the arithmetic, the changes by kind, and all of it in time."""

import time

import pytest

from planner.make_plan import make_plan
from planner.relax import lack_text, leanest
from planner.relax.answer import KINDS
from planner.relax.changes import Asked
from planner.relax.hopeless import is_hopeless
from planner.request import SearchRequest, SpecCluster
from planner.situation import resolve_cluster, situate


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
    assert any(change.startswith("without pin") for change in named)
    assert "activations" in result.reason


@pytest.mark.parametrize("left_s", [-1.0, 0.2])
def test_a_deadline_leaves_the_arithmetic(make_situation, left_s):
    of = make_situation("llama-3.1-405b", "dgx-h100", 8, seq_len=8192, global_batch=64)
    found = leanest(of, SearchRequest(pins={"offload": "none"}), time.monotonic() + left_s)
    assert found is not None
    assert found.verdict == "does_not_fit"
    # 405.9e9 parameters of at least 2 + 4 + 12 bytes over 8 devices: 405.9e9 x 18 / 8 = 913e9.
    assert found.memory.device_used_bytes > 8e11


def test_several_device_groups_are_short_on_a_stage_and_helped_by_more_nodes(make_situation):
    # 70.6e9 parameters of 18 bytes over 4 + 4 devices of 80e9 and 40e9 bytes: 1,270e9 of 480e9.
    groups = [
        {"name": name, "device": device, "nodes": 1, "devices_per_node": 4}
        for name, device in (("large", "a100-sxm-80gb"), ("small", "a100-sxm-40gb"))
    ]
    tiers = [
        {"name": "nvlink", "devices_per_domain": 4, "bytes_per_s": 300e9, "latency_s": 1e-6},
        {"name": "infiniband", "bytes_per_s": 25e9, "latency_s": 5e-6},
    ]
    one = make_situation("llama-3.1-70b", "dgx-a100", 8, seq_len=4096, global_batch=64)
    cluster = resolve_cluster(SpecCluster(spec={"name": "two", "groups": groups, "tiers": tiers}))
    asked = Asked(situate(one.model, cluster, one.job_request), SearchRequest(pins={"offload": "none"}))
    found = leanest(asked.situation, asked.search)
    assert found.verdict == "does_not_fit"
    (more,) = asked.nodes(4)
    assert more.situation.cluster.num_devices == 32
    assert not is_hopeless(more, found)
    assert leanest(more.situation, more.search).memory.device_used_bytes < found.memory.device_used_bytes


def test_a_host_that_is_short_is_said(make_situation):
    # ZeRO-3 with parameters on the host: 70.6e9 parameters of 18 bytes are 1.27e12 bytes, of a host of 1.1e12.
    one = make_situation("llama-3.1-70b", "dgx-a100-40", 1, seq_len=4096, global_batch=8, engine="deepspeed")
    search = SearchRequest(pins={"offload": "parameters"})
    closest = leanest(one, search)
    assert closest.memory.margin_bytes > 0.0
    assert not closest.fits
    assert "of host memory a device" in lack_text(closest, one)
